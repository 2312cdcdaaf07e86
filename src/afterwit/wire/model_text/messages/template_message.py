"""One message, and one tool, as the variables of a chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from afterwit.core.message import Message
from afterwit.core.surrogates import without_halves
from afterwit.wire.model_text.messages.rules import TemplateRules

NOTHING_SAID = {"description": "", "parameters": {"type": "object", "properties": {}}}
"""What a tool without them says to a template that reads them without asking."""
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
"""Each template reads one of these."""


def template_message(message: Message, rules: TemplateRules) -> dict[str, Any]:
    """A message as templates expect it: call arguments as an object or text, `content` always a string."""
    data = message.to_dict()
    data["content"] = message.content or ""
    if message.reasoning is not None:
        data |= dict.fromkeys(REASONING_KEYS, message.reasoning)
    for call in data.get("tool_calls", ()):
        call["function"]["arguments"] = _arguments(call["function"]["arguments"], rules)
    return data


def _arguments(text: str, rules: TemplateRules) -> Any:
    """The arguments parsed if they are a JSON object, else the text. As text they are always spaced alike."""
    try:
        parsed = json.loads(without_halves(text))
    except (ValueError, RecursionError):
        return text
    if not isinstance(parsed, dict):
        return text
    return json.dumps(parsed, ensure_ascii=False) if rules.text_arguments else parsed


def template_tool(tool: Mapping[str, Any], rules: TemplateRules) -> dict[str, Any]:
    """A tool as the client sent it; with what it lacks, if the template needs it."""
    function = tool.get("function")
    if rules.bare_tools or not isinstance(function, Mapping):
        return dict(tool)
    return {
        **tool,
        "function": {**function, **{key: function.get(key, NOTHING_SAID[key]) for key in NOTHING_SAID}},
    }
