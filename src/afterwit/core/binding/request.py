"""A request as it is bound: its fingerprints, the turns it names, what it brings to the turn it answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from afterwit.core.binding.client_ids import ClientSession
from afterwit.core.binding.client_text import is_boilerplate
from afterwit.core.binding.segments import Segment, extend, fingerprints, plain_text, segments_of
from afterwit.core.binding.side_turns import Shape, shape_of
from afterwit.core.ids import turn_of_call
from afterwit.core.message import Conversation, Message
from afterwit.core.turn import Kind

MOST_NAMED = 64
"""Older calls tell nothing that later ones do not."""
_CALL_IN_TEXT = re.compile(r"\bcall_?[0-9a-z]{28}\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingRequest:
    """Build it with `read_request`."""

    turn: str
    """The id that the (first) response will have; a new session is named after it."""
    messages: tuple[Message, ...]
    client: ClientSession
    shape: Shape
    segments: tuple[Segment, ...]
    fingerprints: tuple[bytes, ...]
    """Entry d is of the first d segments."""
    mentions: Mapping[str, int] = field(default_factory=dict)
    """Turns whose tool calls are named, with the index of the first message that does, in that order."""

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """What to look up among the stored turns' hashes, shallow to deep."""
        return self.fingerprints[1:]

    @property
    def named(self) -> tuple[str, ...]:
        """The turns to look up because the request names calls of theirs: the last ones."""
        return tuple(self.mentions)[-MOST_NAMED:]

    @property
    def client_session_hash(self) -> bytes | None:
        """What every turn under the client's own session id has in common; None without such an id."""
        return None if self.client.session is None else self.fingerprints[0]

    @property
    def prompt_hash(self) -> bytes:
        return self.fingerprints[-1]

    @property
    def depth(self) -> int:
        """Segments of the prompt."""
        return len(self.segments)

    def starts_with(self, fingerprint: bytes, depth: int) -> bool:
        """Whether a fingerprint of `depth` segments is of this prompt's first ones."""
        return depth <= self.depth and self.fingerprints[depth] == fingerprint

    def message_after(self, depth: int) -> int:
        """Index of the first message behind the first `depth` segments."""
        return self.segments[depth - 1].message + 1 if depth else 0

    def full(self, response: Message) -> tuple[bytes, int]:
        """The fingerprint and the number of segments of the prompt with its response."""
        said = segments_of((response,))
        return extend(self.prompt_hash, said), self.depth + len(said)


def read_request(
    *, turn: str, scope: str, conversation: Conversation, client: ClientSession, streamed: bool
) -> IncomingRequest:
    """Read a request for binding. Nothing of another `scope` or another explicit id can match it."""
    messages = conversation.messages
    segments = segments_of(messages)
    return IncomingRequest(
        turn=turn,
        messages=messages,
        client=client,
        shape=shape_of(conversation, streamed=streamed),
        segments=segments,
        fingerprints=fingerprints(segments, f"{scope}\0{client.session or ''}"),
        mentions=_mentions(messages),
    )


def added_messages(messages: Sequence[Message], parent: str, depth: int) -> tuple[Message, ...]:
    """What a prompt added to `parent`, whose calls it names or whose segments are its first `depth`."""
    called = _mentions(messages).get(parent)
    if called is not None:
        return next_state(messages[after_call(messages, called) :], Kind.MAIN)
    segments = segments_of(messages)
    return next_state(
        messages[segments[depth - 1].message + 1 :] if 0 < depth <= len(segments) else (), Kind.MAIN
    )


def after_call(messages: Sequence[Message], index: int) -> int:
    """Where what follows a call begins, given the first message that names it: the call or a result."""
    return index + 1 if messages[index].role == "assistant" else index


def next_state(messages: Sequence[Message], kind: Kind) -> tuple[Message, ...]:
    """The next state among the messages after a response: all up to the assistant's next one.

    Messages that only inject text are nobody's reaction. Of a side turn only tool results count: the rest was
    written to obtain a title or a summary, but a tool did return what it returned.
    """
    spoken = next((i for i in range(len(messages)) if _speaks(messages, i)), len(messages))
    roles = ("tool",) if kind is Kind.SIDE else ("user", "tool")
    return tuple(
        message
        for message in messages[:spoken]
        if message.role in roles and (message.role == "tool" or plain_text(message))
    )


def _speaks(messages: Sequence[Message], index: int) -> bool:
    """Whether the assistant does, not its client in its place."""
    message, before = messages[index], messages[index - 1].content if index else None
    if message.role != "assistant":
        return False
    return bool(message.tool_calls) or not is_boilerplate(message.content or "", before or "")


def _mentions(messages: Sequence[Message]) -> dict[str, int]:
    """Turns whose tool-call ids stand in a message: as a call, as a result's, or written out in the text."""
    first: dict[str, int] = {}
    for index, message in enumerate(messages):
        for identifier in _named_calls(message):
            turn = turn_of_call(identifier)
            if turn is not None:
                first.setdefault(turn, index)
    return first


def _named_calls(message: Message) -> Iterable[str]:
    yield from (call.id for call in message.tool_calls)
    if message.tool_call_id is not None:
        yield message.tool_call_id
    yield from _CALL_IN_TEXT.findall(message.content or "")
