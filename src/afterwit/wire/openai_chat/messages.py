"""Messages of an OpenAI chat request: the only place that knows their variants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afterwit.core.message import ROLES, Message, ToolCall
from afterwit.wire.fields import as_arguments, as_list, as_object, as_text, flag, shown, wrong_value
from afterwit.wire.openai import custom_arguments, text_of
from afterwit.wire.request import RequestLimits


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


def parse_begun(data: Mapping[str, Any], limits: RequestLimits) -> tuple[tuple[Message, ...], str]:
    """The messages before the response, and how the response begins.

    It begins with the last message if the client says `continue_final_message`, as to vLLM and SGLang.
    """
    messages = parse_messages(data.get("messages"), limits)
    if not flag(data, "continue_final_message"):
        return messages, ""
    if flag(data, "add_generation_prompt"):
        raise wrong_value("continue_final_message", "contradicts add_generation_prompt")
    *before, last = messages
    if last.role != "assistant" or last.tool_calls or not before:
        message = "needs a last message of the assistant, without tool calls, to go on from"
        raise wrong_value("continue_final_message", message)
    return tuple(before), last.content or ""


def _message(value: Any, where: str) -> Message:
    data = as_object(value, where)
    role = as_text(data.get("role"), f"{where}.role")
    role = "tool" if role == "function" else role
    if role not in ROLES:
        raise wrong_value(f"{where}.role", f"must be one of {', '.join(ROLES)}, not {shown(role)}")
    assistant = role == "assistant"
    return Message(
        role=role,
        content=text_of(data.get("content"), f"{where}.content"),
        reasoning=_reasoning(data, where) if assistant else None,
        tool_calls=_calls(data.get("tool_calls"), f"{where}.tool_calls") if assistant else (),
        tool_call_id=_optional(data, "tool_call_id", where) if role == "tool" else None,
        name=_optional(data, "name", where),
    )


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
    if data.get("type") == "custom":
        return _custom_call(data, where)
    function = as_object(data.get("function"), f"{where}.function")
    return ToolCall(
        id=_optional(data, "id", where) or "",
        name=_optional(function, "name", f"{where}.function") or "",
        arguments=as_arguments(function.get("arguments"), f"{where}.function.arguments"),
    )


def _custom_call(data: Mapping[str, Any], where: str) -> ToolCall:
    custom = as_object(data.get("custom"), f"{where}.custom")
    return ToolCall(
        id=_optional(data, "id", where) or "",
        name=as_text(custom.get("name"), f"{where}.custom.name"),
        arguments=custom_arguments(custom.get("input"), f"{where}.custom.input"),
    )


def _optional(data: Mapping[str, Any], name: str, where: str) -> str | None:
    value = data.get(name)
    return None if value is None else as_text(value, f"{where}.{name}")
