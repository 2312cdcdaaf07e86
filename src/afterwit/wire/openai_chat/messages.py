"""Messages of an OpenAI chat request: the only place that knows their variants."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from afterwit.core.errors import RequestError
from afterwit.core.message import ROLES, Message, ToolCall
from afterwit.wire.fields import as_list, as_object, as_text, shallow, wrong_type, wrong_value
from afterwit.wire.request import RequestLimits

_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Types of content parts that are text, and the field that holds it."""
_REASONING_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})


def parse_messages(value: Any, limits: RequestLimits) -> tuple[Message, ...]:
    """The `messages` of a request. Raises RequestError 400 for whatever is not a message."""
    written = as_list(value, "messages", most=limits.max_messages)
    if not written:
        raise wrong_value("messages", "must hold at least one message")
    messages = tuple(_message(message, f"messages[{index}]") for index, message in enumerate(written))
    calls = sum(len(message.tool_calls) for message in messages)
    if calls > limits.max_calls:
        raise wrong_value("messages", f"hold {calls} tool calls, more than {limits.max_calls}")
    return messages


def _message(value: Any, where: str) -> Message:
    data = as_object(value, where)
    role = as_text(data.get("role"), f"{where}.role")
    role = "tool" if role == "function" else role
    if role not in ROLES:
        raise wrong_value(f"{where}.role", f"must be one of {', '.join(ROLES)}, not {role!r}")
    assistant = role == "assistant"
    return Message(
        role=role,
        content=_content(data.get("content"), f"{where}.content"),
        reasoning=_reasoning(data, where) if assistant else None,
        tool_calls=_calls(data.get("tool_calls"), f"{where}.tool_calls") if assistant else (),
        tool_call_id=_optional(data, "tool_call_id", where) if role == "tool" else None,
        name=_optional(data, "name", where),
    )


def _content(value: Any, where: str) -> str | None:
    """The text of a message; each part is a line of it."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise wrong_type(where, "a string or an array of parts", value)
    parts = [_part(part, f"{where}[{index}]") for index, part in enumerate(value)]
    return "\n".join(part for part in parts if part is not None)


def _part(value: Any, where: str) -> str | None:
    """A part's text, None for reasoning: templates get it from its own field, if at all."""
    if isinstance(value, str):
        return value
    part = as_object(value, where)
    kind = as_text(part.get("type"), f"{where}.type")
    if kind in _REASONING_PARTS:
        return None
    if kind not in _TEXT_PARTS:
        raise RequestError(
            400,
            "unsupported_content",
            f"{where} is of type {kind!r}: this model reads text only",
            param=where,
        )
    return as_text(part.get(_TEXT_PARTS[kind]), f"{where}.{_TEXT_PARTS[kind]}")


def _reasoning(data: Mapping[str, Any], where: str) -> str | None:
    for name in ("reasoning_content", "reasoning"):
        if data.get(name) is not None:
            return as_text(data[name], f"{where}.{name}")
    return None


def _calls(value: Any, where: str) -> tuple[ToolCall, ...]:
    if value is None:
        return ()
    return tuple(_call(call, f"{where}[{index}]") for index, call in enumerate(as_list(value, where)))


def _call(value: Any, where: str) -> ToolCall:
    data = as_object(value, where)
    function = as_object(data.get("function"), f"{where}.function")
    arguments = function.get("arguments")
    if isinstance(arguments, Mapping):
        shallow(arguments, f"{where}.function.arguments")
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(
        id=_optional(data, "id", where) or "",
        name=as_text(function.get("name"), f"{where}.function.name"),
        arguments="{}" if arguments is None else as_text(arguments, f"{where}.function.arguments"),
    )


def _optional(data: Mapping[str, Any], name: str, where: str) -> str | None:
    value = data.get(name)
    return None if value is None else as_text(value, f"{where}.{name}")
