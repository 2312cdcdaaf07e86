"""The shapes that OpenAI's two protocols share: content, tool choices, log-probs, errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from afterwit.dialects.fields import (
    Tool,
    as_list,
    as_object,
    as_text,
    integer,
    omitted,
    shown,
    wrong_type,
    wrong_value,
)
from afterwit.dialects.request import Field, ToolChoice
from afterwit.dialects.response import TokenLogprob
from afterwit.errors import RequestError

_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Types of content parts that are text, and the field that holds it."""

_REASONING_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})

MOST_ALTERNATIVES = 20


def text_of(value: Any, where: str) -> str | None:
    """The text of a content: a string, or an array of parts, joined as lines. None: no content."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong_type(where, "a string or an array of parts", value)
    parts = [_part(part, f"{where}[{index}]") for index, part in enumerate(value)]
    return "\n".join(part for part in parts if part is not None)


def _part(value: Any, where: str) -> str | None:
    """A part's text; None for reasoning, which templates read from its own field."""
    if isinstance(value, str):
        return value
    part = as_object(value, where)
    kind = as_text(part.get("type"), f"{where}.type")
    if kind in _REASONING_PARTS:
        return None
    if kind not in _TEXT_PARTS:
        return omitted(kind)
    field = _TEXT_PARTS[kind]
    if field in part and part[field] is None:
        return ""
    return as_text(part.get(field), f"{where}.{field}")


def custom_arguments(value: Any, where: str) -> str:
    """The free text of a call of a `custom` tool, as the one argument `input`."""
    return json.dumps({"input": "" if value is None else as_text(value, where)}, ensure_ascii=False)


def parse_tool_choice(
    value: Any, tools: Sequence[Tool], *, nested: bool
) -> tuple[ToolChoice, str | None, tuple[Tool, ...]]:
    """Whether the response calls a tool, the tool's name if one is required, and the allowed tools.

    `nested`: `function` and `allowed_tools` are objects in a field of their type, as in chat.
    """
    tools = tuple(tools)
    if value is None:
        return ToolChoice.AUTO, None, tools
    if isinstance(value, str):
        return _mode(value, tools), None, tools
    choice = as_object(value, "tool_choice")
    kind = as_text(choice.get("type", "function" if nested else None), "tool_choice.type")
    if kind == "function":
        return ToolChoice.REQUIRED, _known_name(choice, tools, "tool_choice", nested=nested), tools
    if kind != "allowed_tools":
        message = f"tool_choice asks for a tool of type {shown(kind)}: this server calls functions only."
        raise RequestError(400, "unsupported_tool_choice", message, param="tool_choice")
    where = "tool_choice.allowed_tools" if nested else "tool_choice"
    choice = as_object(choice.get(kind), where) if nested else choice
    where = f"{where}.tools"
    entries = [as_object(entry, where) for entry in as_list(choice.get("tools"), where)]
    functions = [entry for entry in entries if entry.get("type") == "function"]
    names = {_known_name(entry, tools, where, nested=nested) for entry in functions}
    allowed = tuple(tool for tool in tools if tool["function"]["name"] in names)
    return _mode(choice.get("mode", ToolChoice.AUTO), allowed), None, allowed


def _mode(value: Any, tools: Sequence[Tool]) -> ToolChoice:
    mode = as_text(value, "tool_choice")
    if mode not in set(ToolChoice):
        raise wrong_value("tool_choice", f"must be auto, none, required or a function, not {shown(mode)}")
    if mode == ToolChoice.REQUIRED and not tools:
        raise wrong_value("tool_choice", "asks for a call, but there are no functions among the tools")
    return ToolChoice(mode)


def _known_name(choice: Mapping[str, Any], tools: Sequence[Tool], where: str, *, nested: bool) -> str:
    function = as_object(choice.get("function"), f"{where}.function") if nested else choice
    name = as_text(function.get("name"), f"{where}.function.name" if nested else f"{where}.name")
    if name not in {tool["function"]["name"] for tool in tools}:
        raise wrong_value(where, f"names {shown(name)}, which is not among the tools")
    return name


def parse_top_logprobs(data: Mapping[str, Any]) -> int:
    """The number of alternatives for each token. Raises RequestError 400."""
    return integer(data, "top_logprobs", low=0, high=MOST_ALTERNATIVES) or 0


def logprob_objects(tokens: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """One object for each token."""
    return [{**_logprob(token), "top_logprobs": list(map(_logprob, token.top))} for token in tokens]


def _logprob(token: TokenLogprob) -> dict[str, Any]:
    return {"token": token.text, "logprob": token.logprob, "bytes": list(token.text.encode())}


def error_form(error: RequestError, params: Mapping[str | None, str]) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`. `params`: the client's names of fields that differ."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    named: dict[str | None, str] = {Field.STOP_IDS: "stop_token_ids", **params}
    return {
        "error": {
            "message": error.message,
            "type": "rate_limit_error" if error.status == 429 else kind,
            "param": named.get(error.param, error.param),
            "code": error.code,
        }
    }
