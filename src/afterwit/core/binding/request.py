"""An incoming request, read once for binding: its segments, its fingerprints and the turns it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from sys import getsizeof

from afterwit.core.binding.client_ids import ClientSession
from afterwit.core.binding.client_text import is_boilerplate
from afterwit.core.binding.segments import (
    Segment,
    extend,
    fingerprints,
    parts_of,
    plain_text,
    segments_of,
)
from afterwit.core.binding.side_turns import Shape, shape_of
from afterwit.core.ids import calls_in, turn_of_call
from afterwit.core.kept import Kept
from afterwit.core.message import SYSTEM, Conversation, Message, observed
from afterwit.core.turn import Kind, RecordedTurn

MOST_NAMED = 64
"""Most turns that are looked up by the calls that a request names, the latest first."""
MOST_READ_BYTES = 32 * 2**20
"""Bytes of messages that are known when they come again: 200 conversations of 100 kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingRequest:
    """Build it with `read_request`."""

    turn: str
    """The id that the (first) response will have; a new session is named after it."""
    messages: tuple[Message, ...]
    texts: tuple[str, ...]
    """Each message's text as it is compared."""
    client: ClientSession
    shape: Shape
    segments: tuple[Segment, ...]
    fingerprints: tuple[bytes, ...]
    """Entry d is of the first d segments."""
    mentions: Mapping[str, int]
    """Turns whose tool calls are named, with the index of the first message that does, in that order."""
    follows: str | None = None
    """The turn that the client says it goes on from; None if it does not say."""

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """What to look up among the stored turns' hashes, shallow to deep."""
        return self.fingerprints[1:]

    @property
    def named(self) -> tuple[str, ...]:
        """The turns to look up because the request names their calls; the last `MOST_NAMED`."""
        return tuple(self.mentions)[-MOST_NAMED:]

    @property
    def client_session_hash(self) -> bytes | None:
        """Hash of the client's session id; None if it sent none."""
        return None if self.client.session is None else self.fingerprints[0]

    @property
    def prompt_hash(self) -> bytes:
        return self.fingerprints[-1]

    @property
    def depth(self) -> int:
        """Segments of the prompt."""
        return len(self.segments)

    @property
    def last_reply(self) -> tuple[int, str] | None:
        """Index and text of the last message of the assistant; None if there is none, or it says nothing."""
        index = last_reply(self.messages)
        return (index, self.texts[index]) if index is not None and self.texts[index] else None

    def starts_with(self, fingerprint: bytes, depth: int) -> bool:
        """Whether a fingerprint of `depth` segments is that of this prompt's first ones."""
        return depth <= self.depth and self.fingerprints[depth] == fingerprint

    def message_after(self, depth: int) -> int:
        """Index of the first message behind the first `depth` segments."""
        return self.segments[depth - 1].message + 1 if depth else 0

    def after_call(self, index: int) -> int:
        """Index of the first message after a call, given the first message that names the call."""
        return _after_call(self.messages, index)

    def full(self, response: Message) -> tuple[bytes, int]:
        """The fingerprint and the number of segments of the prompt with its response."""
        said = _read_message(response).segments
        return extend(self.prompt_hash, said), self.depth + len(said)


def read_request(
    *,
    turn: str,
    scope: str,
    conversation: Conversation,
    client: ClientSession,
    streamed: bool,
    follows: str | None = None,
) -> IncomingRequest:
    """Read a request for binding. Nothing of another `scope` or another explicit id can match it."""
    messages = conversation.messages
    read = [_read_message(message) for message in messages]
    segments = tuple(
        Segment(parts=parts, message=index) for index, one in enumerate(read) for parts in one.segments
    )
    return IncomingRequest(
        turn=turn,
        messages=messages,
        texts=tuple(one.text for one in read),
        client=client,
        shape=shape_of(conversation, streamed=streamed),
        segments=segments,
        fingerprints=fingerprints(segments, f"{scope}\0{client.session or ''}"),
        mentions=_mentions(read),
        follows=follows,
    )


def message_text(message: Message) -> str:
    """`plain_text` of a message that is likely to come again, or came before."""
    return _read_message(message).text


def reply_segments(message: Message) -> tuple[tuple[str, ...], ...]:
    """The segments of a response, by their parts."""
    return _read_message(message).segments


def next_state(
    incoming: IncomingRequest, after: int, kind: Kind, behind: tuple[Message, ...] = ()
) -> tuple[Message, ...]:
    """The next state: what is `behind` a summary, and the messages from `after` to the assistant's next one.

    Messages that hold only the client's text are left out, the system's if anybody else spoke. A side turn
    keeps only its tool results: its other messages were written to obtain a title or a summary.
    """
    return (*_reaction(behind, 0, kind), *_reaction(incoming.messages, after, kind))


def added_messages(messages: Sequence[Message], parent: RecordedTurn, depth: int) -> tuple[Message, ...]:
    """The next state of `parent` in the prompt of its child.

    It begins after the parent's call or reply, or after the `depth` segments of its prompt and response.
    """
    called = _mentions(map(_read_message, messages)).get(parent.id)
    if called is not None:
        return _reaction(messages, _after_call(messages, called), Kind.MAIN)
    reply, last = plain_text(parent.message), last_reply(messages)
    if reply and last is not None and plain_text(messages[last]) == reply:
        return _reaction(messages, last + 1, Kind.MAIN)
    segments = segments_of(messages, tuple(plain_text(message) for message in messages))
    if not 0 < depth <= len(segments):
        return ()
    return _reaction(messages, segments[depth - 1].message + 1, Kind.MAIN)


def last_reply(messages: Sequence[Message]) -> int | None:
    """Index of the last message of the assistant."""
    return next((at for at in reversed(range(len(messages))) if messages[at].role == "assistant"), None)


def _after_call(messages: Sequence[Message], index: int) -> int:
    """Index after the call, or of its result if the call itself is gone."""
    return index + 1 if messages[index].role == "assistant" else index


def _reaction(messages: Sequence[Message], after: int, kind: Kind) -> tuple[Message, ...]:
    roles = ("tool",) if kind is Kind.SIDE else ("user", "tool")
    kept, told = [], []
    for index in range(after, len(messages)):
        message, before = messages[index], messages[index - 1].content if index > after else None
        if _speaks(message, before):
            break
        if message.role in roles and (message.role == "tool" or plain_text(message)):
            kept.append(message)
        elif message.role in SYSTEM and plain_text(message):
            told.append(message)
    return tuple(kept) if kept or kind is Kind.SIDE else observed(told)


def _speaks(message: Message, before: str | None) -> bool:
    """Whether the assistant said this, and not the client in its place."""
    if message.role != "assistant":
        return False
    return bool(message.tool_calls) or not is_boilerplate(message.content or "", before or "")


def _mentions(messages: Iterable[_ReadMessage]) -> dict[str, int]:
    """Turns whose tool-call ids a message holds: as a call, as a result's, or written out in the text."""
    first: dict[str, int] = {}
    for index, message in enumerate(messages):
        for turn in message.turns:
            first.setdefault(turn, index)
    return first


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadMessage:
    """What a message alone decides. Agents send each message again with every request."""

    text: str
    """As it is compared."""
    segments: tuple[tuple[str, ...], ...]
    turns: tuple[str, ...]
    """Whose tool calls it names."""


def _read(message: Message) -> _ReadMessage:
    text = plain_text(message)
    turns = (turn_of_call(identifier) for identifier in _named_calls(message))
    return _ReadMessage(
        text=text,
        segments=tuple(parts_of(message, text)),
        turns=tuple(turn for turn in turns if turn is not None),
    )


def _bytes(message: Message, read: _ReadMessage) -> int:
    """The segments hold the text or pieces of it again; a call's arguments are kept twice."""
    arguments = sum(getsizeof(call.arguments) for call in message.tool_calls)
    return getsizeof(message.content) + getsizeof(message.reasoning) + getsizeof(read.text) + 2 * arguments


_read_message = Kept(_read, most_bytes=MOST_READ_BYTES, size=_bytes)


def _named_calls(message: Message) -> Iterable[str]:
    yield from (call.id for call in message.tool_calls)
    if message.tool_call_id is not None:
        yield message.tool_call_id
    yield from calls_in(message.content or "")
