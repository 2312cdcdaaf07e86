"""The input of a Responses request: items that become the messages of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from afterwit.core.ids import STORED_PREFIX, with_prefix
from afterwit.core.message import Message, ToolCall
from afterwit.wire.fields import as_arguments, as_list, as_object, as_text, shown, wrong_type, wrong_value
from afterwit.wire.openai import custom_arguments, text_of
from afterwit.wire.openai_responses.references import referred_id, referred_part
from afterwit.wire.request import RequestLimits

Quoted = Mapping[str, Message]
"""Earlier responses that items may refer to, by turn."""
ITEMS_OF_ONE = 3
"""Items that a message leaves as: a thought, a text and a call."""
ROLES = ("user", "assistant", "system", "developer")


def parse_input(value: Any, quoted: Quoted, limits: RequestLimits) -> tuple[Message, ...]:
    """The messages of an `input`: a text of the user, or items. Raises RequestError 400 and 404."""
    if isinstance(value, str):
        return (Message(role="user", content=value),)
    if not isinstance(value, list):
        raise wrong_type("input", "a string or an array of items", value)
    items = as_list(value, "input", most=ITEMS_OF_ONE * limits.max_messages)
    return tuple(_joined(_parts(items, quoted)))


def _parts(items: Iterable[Any], quoted: Quoted) -> Iterator[Message]:
    """Each item as a message of its own; an item of an unknown type, or without a text, is none."""
    for index, value in enumerate(items):
        where = f"input[{index}]"
        item = as_object(value, where)
        identifier = referred_id(item)
        part = referred_part(identifier, quoted, where) if identifier is not None else _part(item, where)
        if part is not None:
            yield part


def _part(item: Mapping[str, Any], where: str) -> Message | None:
    kind = item.get("type")
    read = _READERS.get("message" if kind is None else as_text(kind, f"{where}.type"))
    return None if read is None else read(item, where)


def _message(item: Mapping[str, Any], where: str) -> Message:
    role = as_text(item.get("role"), f"{where}.role")
    if role not in ROLES:
        raise wrong_value(f"{where}.role", f"must be one of {', '.join(ROLES)}, not {shown(role)}")
    return Message(role=role, content=text_of(item.get("content"), f"{where}.content") or "")


def _reasoning(item: Mapping[str, Any], where: str) -> Message | None:
    """The thought in plain text, if the client sends it back."""
    for name in ("content", "summary"):
        if item.get(name):
            parts = as_list(item[name], f"{where}.{name}")
            read = (as_object(part, f"{where}.{name}").get("text") for part in parts)
            thought = "\n\n".join(as_text(text, f"{where}.{name}.text") for text in read)
            return Message(role="assistant", reasoning=thought)
    return None


def _call(item: Mapping[str, Any], where: str) -> Message:
    call = ToolCall(
        id=_call_id(item, where),
        name=as_text(item.get("name"), f"{where}.name"),
        arguments=as_arguments(item.get("arguments"), f"{where}.arguments"),
    )
    return Message(role="assistant", tool_calls=(call,))


def _custom_call(item: Mapping[str, Any], where: str) -> Message:
    call = ToolCall(
        id=_call_id(item, where),
        name=as_text(item.get("name"), f"{where}.name"),
        arguments=custom_arguments(item.get("input"), f"{where}.input"),
    )
    return Message(role="assistant", tool_calls=(call,))


def _output(item: Mapping[str, Any], where: str) -> Message:
    content = text_of(item.get("output"), f"{where}.output") or ""
    return Message(role="tool", content=content, tool_call_id=_call_id(item, where))


def _call_id(item: Mapping[str, Any], where: str) -> str:
    return with_prefix(STORED_PREFIX, as_text(item.get("call_id"), f"{where}.call_id"))


def _nameless_reference(item: Mapping[str, Any], where: str) -> None:
    """Raises 400: an item with an id was read before."""
    raise wrong_type(f"{where}.id", "a string", item.get("id"))


_READERS: Mapping[str, Callable[[Mapping[str, Any], str], Message | None]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _call,
    "function_call_output": _output,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _output,
    "item_reference": _nameless_reference,
}
"""By the type of an item."""


def _joined(parts: Iterable[Message]) -> Iterator[Message]:
    """The parts of each reply as one message: a response leaves as several items."""
    reply: list[Message] = []
    for part in parts:
        if reply and not _belongs(part, reply):
            yield _whole(reply)
            reply = []
        if part.role == "assistant":
            reply.append(part)
        else:
            yield part
    if reply:
        yield _whole(reply)


def _belongs(part: Message, reply: list[Message]) -> bool:
    """Whether a part is of the same reply as those before it.

    A reply thinks, speaks and calls, in this order; it may also speak after a call.
    """
    last = reply[-1]
    if part.role != "assistant":
        return False
    if part.reasoning is not None:
        return last.reasoning is not None
    return part.content is None or last.content is None


def _whole(reply: list[Message]) -> Message:
    texts = [part.content for part in reply if part.content is not None]
    thoughts = [part.reasoning for part in reply if part.reasoning is not None]
    return Message(
        role="assistant",
        content="".join(texts) if texts else None,
        reasoning="\n\n".join(thoughts) if thoughts else None,
        tool_calls=tuple(call for part in reply for call in part.tool_calls),
    )
