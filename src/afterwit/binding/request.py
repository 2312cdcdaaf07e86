"""An incoming request, read once for binding: its segments, its fingerprints and the turns it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from sys import getsizeof

from afterwit.binding.client_ids import ClientSession
from afterwit.binding.segments import Segment, extend, fingerprints, parts_of, plain_text
from afterwit.binding.side_turns import Shape, open_messages, shape_of
from afterwit.binding.silence import Head, heads_of
from afterwit.byte_cache import Kept
from afterwit.ids import calls_in, turn_of_call
from afterwit.message import Conversation, Message

MOST_NAMED = 64
"""Most turns that are looked up by the calls that a request names, the latest first."""


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
    """Turns whose tool calls are made or answered, with the index of the first message that does."""
    written: Mapping[str, int]
    """The same of turns whose calls the text of a reply holds. Anyone may quote an id."""
    heads: tuple[Head, ...] = ()
    """Of the user messages that no reply follows."""
    follows: str | None = None
    """The turn that the client says it goes on from; None if it does not say."""

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """What to look up among the stored turns' hashes, shallow to deep."""
        return (*self.fingerprints[1:], *(head.fingerprint for head in self.heads))

    @property
    def named(self) -> tuple[str, ...]:
        """The turns to look up because the request names their calls; the last `MOST_NAMED`."""
        named = {**self.written, **self.mentions}
        return tuple(sorted(named, key=named.__getitem__))[-MOST_NAMED:]

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
        return after_call(self.messages, index)

    def full(self, response: Message) -> tuple[bytes, int]:
        """The fingerprint and the number of segments of the prompt with its response."""
        said = read_message(response).segments
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
    read = [read_message(message) for message in messages]
    segments = tuple(
        Segment(parts=parts, message=index) for index, one in enumerate(read) for parts in one.segments
    )
    known = fingerprints(segments, f"{scope}\0{client.session or ''}")
    return IncomingRequest(
        turn=turn,
        messages=messages,
        texts=tuple(one.text for one in read),
        client=client,
        shape=shape_of(conversation, streamed=streamed),
        segments=segments,
        fingerprints=known,
        mentions=mentions(read),
        written=written_calls(read),
        heads=heads_of(messages, segments, known, len(messages) - len(open_messages(messages))),
        follows=follows,
    )


def last_reply(messages: Sequence[Message]) -> int | None:
    """Index of the last message of the assistant."""
    return next((at for at in reversed(range(len(messages))) if messages[at].role == "assistant"), None)


def after_call(messages: Sequence[Message], index: int) -> int:
    """Index after the call, or of its result if the call itself is gone."""
    return index + 1 if messages[index].role == "assistant" else index


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
