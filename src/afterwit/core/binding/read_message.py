"""What a message alone decides, read once: agents send each message again with every request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from sys import getsizeof

from afterwit.core.binding.segments import parts_of, plain_text
from afterwit.core.ids import calls_in, turn_of_call
from afterwit.core.kept import Kept
from afterwit.core.message import Message

MOST_READ_BYTES = 32 * 2**20
"""Bytes of messages that are known when they come again: 200 conversations of 100 kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMessage:
    """A message, read."""

    text: str
    """As it is compared."""
    segments: tuple[tuple[str, ...], ...]
    turns: tuple[str, ...]
    """Whose tool calls it makes, or brings the results of."""
    written: tuple[str, ...] = ()
    """Whose tool calls the assistant's text holds: some clients write calls out. It proves nothing alone."""


def _read(message: Message) -> ReadMessage:
    text = plain_text(message)
    written = calls_in(message.content or "") if message.role == "assistant" else ()
    return ReadMessage(
        text=text,
        segments=tuple(parts_of(message, text)),
        turns=_turns(_named_calls(message)),
        written=_turns(written),
    )


def _turns(identifiers: Iterable[str]) -> tuple[str, ...]:
    turns = map(turn_of_call, identifiers)
    return tuple(turn for turn in turns if turn is not None)


def _bytes(message: Message, read: ReadMessage) -> int:
    """The segments hold the text or pieces of it again; a call's arguments are kept twice."""
    arguments = sum(getsizeof(call.arguments) for call in message.tool_calls)
    return getsizeof(message.content) + getsizeof(message.reasoning) + getsizeof(read.text) + 2 * arguments


def _named_calls(message: Message) -> Iterable[str]:
    yield from (call.id for call in message.tool_calls)
    if message.tool_call_id is not None:
        yield message.tool_call_id


read_message = Kept(_read, most_bytes=MOST_READ_BYTES, size=_bytes)


def message_text(message: Message) -> str:
    """`plain_text` of a message that is likely to come again, or came before."""
    return read_message(message).text


def reply_segments(message: Message) -> tuple[tuple[str, ...], ...]:
    """The segments of a response, by their parts."""
    return read_message(message).segments


def mentions(messages: Iterable[ReadMessage]) -> dict[str, int]:
    """Turns whose tool-call ids a message holds as a call's or as a result's, and the first that does."""
    return _first((index, turn) for index, message in enumerate(messages) for turn in message.turns)


def written_calls(messages: Iterable[ReadMessage]) -> dict[str, int]:
    """Turns whose tool-call ids the text of a reply holds, and the first that does."""
    return _first((index, turn) for index, message in enumerate(messages) for turn in message.written)


def _first(found: Iterable[tuple[int, str]]) -> dict[str, int]:
    first: dict[str, int] = {}
    for index, turn in found:
        first.setdefault(turn, index)
    return first
