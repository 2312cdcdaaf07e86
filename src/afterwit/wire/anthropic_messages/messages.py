"""Messages of an Anthropic request, in the form that all dialects share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, groupby, takewhile
from typing import Any

from afterwit.core.ids import STORED_PREFIX, with_prefix
from afterwit.core.message import Message, ToolCall
from afterwit.wire.anthropic_messages.content import (
    Block,
    count_blocks,
    joined,
    parse_blocks,
    text_of,
    texts_of,
)
from afterwit.wire.fields import as_arguments, as_list, as_object, as_text, shown, wrong_value
from afterwit.wire.request import RequestLimits

_BILLING = re.compile(r"^x-anthropic-billing-header:[^\n]*\n?", re.MULTILINE)
"""A line that Claude Code writes into the system text for its servers. It changes with every request."""
_FAILED = "Error: "
"""Before the text of a tool's failure: templates have no field that says so."""


def parse_system(value: Any, most: int) -> tuple[Message, ...]:
    """The system text as a message; none if it says nothing. At most `most` blocks."""
    if count_blocks([value]) > most:
        raise wrong_value("system", f"holds more than {most} blocks")
    texts = (_BILLING.sub("", text_of(block) or "") for block in parse_blocks(value, "system"))
    text = "\n".join(text for text in texts if text)
    return (Message(role="system", content=text),) if text else ()


def parse_conversation(system: Any, messages: Any, limits: RequestLimits) -> tuple[Message, ...]:
    """The system text and the messages. System text is one message at the beginning, as templates want it.

    Claude Code sends system text later on as well: that becomes a reminder, in the form of its own ones.
    """
    said = [*parse_system(system, limits.max_parts), *parse_messages(messages, limits)]
    begun = list(takewhile(_is_system, said))
    if len(begun) == len(said):
        raise wrong_value("messages", "must hold at least one message of the user")
    text = "\n".join(message.content for message in begun if message.content)
    rest = (_reminder(message) if _is_system(message) else message for message in said[len(begun) :])
    return (*((Message(role="system", content=text),) if text else ()), *rest)


def parse_begun(system: Any, messages: Any, limits: RequestLimits) -> tuple[tuple[Message, ...], str]:
    """The messages before the response, and how the response begins: with a last message of the assistant."""
    *before, last = parse_conversation(system, messages, limits)
    if last.role != "assistant" or last.tool_calls:
        return (*before, last), ""
    if all(map(_is_system, before)):
        raise wrong_value("messages", "must hold at least one message of the user")
    return tuple(before), (last.content or "").strip()


def _is_system(message: Message) -> bool:
    return message.role == "system"


def _reminder(message: Message) -> Message:
    return Message(role="user", content=f"<system-reminder>\n{message.content}\n</system-reminder>")


def parse_messages(value: Any, limits: RequestLimits) -> list[Message]:
    """The `messages` of a request. Each tool result becomes a message of its own. Raises RequestError 400."""
    written = as_list(value, "messages", most=limits.max_messages)
    if not written:
        raise wrong_value("messages", "must hold at least one message")
    blocks = count_blocks(message.get("content") for message in written if isinstance(message, dict))
    if blocks > limits.max_parts:
        raise wrong_value("messages", f"hold {blocks} blocks, more than {limits.max_parts}")
    said = [part for index, message in enumerate(written) for part in _said(message, f"messages[{index}]")]
    calls = sum(len(message.tool_calls) + (message.role == "tool") for message in said)
    if calls > limits.max_calls:
        raise wrong_value("messages", f"hold {calls} tool calls and results, more than {limits.max_calls}")
    return said


def _said(value: Any, where: str) -> list[Message]:
    data = as_object(value, where)
    role = as_text(data.get("role"), f"{where}.role")
    if role not in _ROLES:
        raise wrong_value(f"{where}.role", f"must be one of {', '.join(_ROLES)}, not {shown(role)}")
    return _ROLES[role](parse_blocks(data.get("content"), f"{where}.content"))


def _system(blocks: Sequence[Block]) -> list[Message]:
    return [Message(role="system", content=_BILLING.sub("", joined(list(blocks))))]


def _user(blocks: Sequence[Block]) -> list[Message]:
    """Tool results are messages; the blocks between them are one message."""
    messages: list[Message] = []
    for is_result, group in groupby(blocks, lambda block: block.kind == "tool_result"):
        if is_result:
            messages += [_result(block) for block in group]
        else:
            messages.append(_words(texts_of(list(group))))
    return messages or [Message(role="user", content="")]


def _words(texts: list[str]) -> Message:
    """One message of several texts, each on lines of its own."""
    ends = accumulate(len(text) + 1 for text in texts[:-1])
    return Message(role="user", content="\n".join(texts), breaks=tuple(ends))


def _result(block: Block) -> Message:
    text = joined(parse_blocks(block.data.get("content"), f"{block.where}.content"))
    if block.data.get("is_error") is True and not text.lower().startswith("error"):
        text = _FAILED + text
    return Message(
        role="tool", content=text, tool_call_id=with_prefix(STORED_PREFIX, block.text("tool_use_id"))
    )


def _assistant(blocks: Sequence[Block]) -> list[Message]:
    """One message. Its texts are one text that calls may interrupt."""
    calls = tuple(_call(block) for block in blocks if block.kind == "tool_use")
    thoughts = [block.text("thinking") for block in blocks if block.kind == "thinking"]
    texts = [text_of(block) or "" for block in blocks if block.kind != "tool_use"]
    content = "".join(texts)
    return [
        Message(
            role="assistant",
            content=content if content or not calls else None,
            reasoning="".join(thoughts) or None,
            tool_calls=calls,
        )
    ]


def _call(block: Block) -> ToolCall:
    arguments = as_arguments(block.data.get("input"), f"{block.where}.input")
    identifier = with_prefix(STORED_PREFIX, block.text("id"))
    return ToolCall(id=identifier, name=block.text("name"), arguments=arguments)


_ROLES: Mapping[str, Callable[[Sequence[Block]], list[Message]]] = {
    "user": _user,
    "assistant": _assistant,
    "system": _system,
}
