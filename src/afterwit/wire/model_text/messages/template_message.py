"""One message, and one tool, as the variables of a chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from afterwit.core.message import Message
from afterwit.core.surrogates import without_halves
from afterwit.wire.model_text.messages.rules import TemplateRules, in_parts

NOTHING_SAID = {"description": "", "parameters": {"type": "object", "properties": {}}}
"""What a tool without them says to a template that reads them without asking."""
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
"""Each template reads one of these."""


def template_message(message: Message, rules: TemplateRules) -> dict[str, Any]:
    """A message as templates expect it: call arguments as an object or text, `content` never null."""
    data = message.to_dict()
    data["content"] = in_parts(message.content or "") if rules.parts else message.content or ""
    if message.reasoning is not None:
        data |= dict.fromkeys(REASONING_KEYS, message.reasoning)
    for call in data.get("tool_calls", ()):
        call["function"]["arguments"] = _arguments(call["function"]["arguments"], rules)
    return data


def _arguments(text: str, rules: TemplateRules) -> Any:
    """The arguments as an object, or as its text, which is always spaced alike.

    Templates go through them by name: what is no JSON object is shown as the one argument `input`, as is the
    text of a `custom` call.
    """
    try:
        parsed = json.loads(without_halves(text))
    except (ValueError, RecursionError):
        parsed = text
    if not isinstance(parsed, dict):
        parsed = {"input": parsed}
    return json.dumps(parsed, ensure_ascii=False) if rules.text_arguments else parsed


def template_tool(tool: Mapping[str, Any], rules: TemplateRules) -> dict[str, Any]:
    """A tool as the client sent it; with what it lacks, if the template needs it."""
    function = tool.get("function")
    if rules.bare_tools or not isinstance(function, Mapping):
        return dict(tool)
    lacks = {key: said for key, said in NOTHING_SAID.items() if function.get(key) is None}
    return {**tool, "function": {**function, **lacks}}
