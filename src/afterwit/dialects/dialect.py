"""A dialect: everything that the gateway knows about one client protocol, in one object.

A response grows in a common form, which the dialect's encoder turns into bytes, such as server-sent events.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import orjson

from afterwit.dialects.request import ModelRequest, RequestLimits
from afterwit.errors import RequestError
from afterwit.text import one_line
from afterwit.turn import Finish, Message, Turn, call_id, choice_turn

PIECE = 64
"""Characters of a tool call's arguments in one event of a stream."""


@dataclass(slots=True, kw_only=True)
class TextDelta:
    """More content. Not frozen: one is made for every token, in half the time."""

    text: str


@dataclass(slots=True, kw_only=True)
class ReasoningDelta:
    """More reasoning. Not frozen, as `TextDelta`."""

    text: str


@dataclass(slots=True, kw_only=True)
class CallDelta:
    """More arguments of a call that is still being written. The first one begins the call.

    Only a `ParsedCall` completes it: if the end cannot be read, the text becomes content. The arguments are
    never complete JSON until then, so that no client executes such a call. Not frozen, as `TextDelta`.
    """

    index: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCall:
    """One complete tool call; `arguments` is a JSON object as the model wrote it.

    They begin with the arguments of the `CallDelta`s of this index.
    """

    index: int
    """Its place among the calls that the response began."""
    name: str
    arguments: str


ResponseEvent = TextDelta | ReasoningDelta | CallDelta | ParsedCall


class SentCalls:
    """How many characters of the arguments of one choice's open calls were sent."""

    def __init__(self) -> None:
        self._sent: dict[int, int] = {}

    def add(self, event: CallDelta | ParsedCall) -> tuple[bool, str]:
        """Whether the event begins its call, and the arguments to send now."""
        sent = self._sent.pop(event.index, None)
        if isinstance(event, ParsedCall):
            return sent is None, event.arguments[sent or 0 :]
        self._sent[event.index] = (sent or 0) + len(event.arguments)
        return sent is None, event.arguments


def in_pieces(arguments: str) -> Iterator[str]:
    return (arguments[start : start + PIECE] for start in range(0, len(arguments), PIECE))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    data: bytes
    """The token, which may be a part of a character."""
    logprob: float
    top: Sequence[TokenLogprob] = ()
    """The most likely tokens at its position, most likely first; empty unless the client asked for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, as the engine counted them."""

    prompt: int
    completion: int
    cached: int = 0
    """Tokens of the prompt that the engine had read before; 0 also if it does not report them."""
    reasoning: int = 0
    """Tokens of the completion that are reasoning, give or take a step of the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """The facts that are known before the first token."""

    turn: str
    """The turn of the first choice. The response id ends with it."""
    created: int
    """Whole seconds since the epoch."""
    model: str
    """As the client asked for it."""
    prompt_tokens: int

    def call_id(self, choice: int, index: int) -> str:
        return call_id(choice_turn(self.turn, choice), index)


@dataclass(slots=True, kw_only=True)
class ChoiceDelta:
    """One engine step of one choice. Not frozen, as `TextDelta`."""

    choice: int
    events: Sequence[ResponseEvent]
    version: int
    """The weight version that sampled the latest token."""
    logprobs: Sequence[TokenLogprob] = ()
    """Log-probs of the tokens of `events`; empty unless the client asked for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceEnd:
    """A choice is complete and in the store."""

    choice: int
    message: Message
    """The whole choice, the sum of its deltas."""
    finish: Finish
    stop: str | None
    """The stop string that ended it; None if none did."""
    version: int
    logprobs: Sequence[TokenLogprob] = ()
    """Log-probs that were in no delta."""
    ended: float | None = None
    """Seconds since the epoch; None: unknown."""


JsonObject = dict[str, Any]


class Encoder(Protocol):
    """Turns one response into bytes, without I/O. Every method returns the bytes to send now.

    The HTTP response starts with the first bytes: until then an error is sent with its own status.
    """

    content_type: str
    heartbeat: bytes
    """Sent while a stream that has begun is idle. Clients ignore it."""

    def begin(self, version: int) -> bytes:
        """The bytes before all choices. The first `delta` sends them if this was not called.

        `version`: the live weights.
        """

    def delta(self, delta: ChoiceDelta) -> bytes:
        """A choice has grown, perhaps by no event."""

    def end_choice(self, end: ChoiceEnd) -> bytes:
        """A choice is complete."""

    def end(self, usage: Usage, version: int) -> bytes:
        """All choices are complete: the last bytes."""

    def fail(self, error: RequestError) -> bytes:
        """The last bytes of a response that fails after its first bytes were sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The ids of earlier turns that a request refers to."""

    previous: str | None = None
    """The turn that it continues; None if it contains its whole conversation."""
    quoted: tuple[str, ...] = ()
    """Turns whose responses it refers to in part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTurns:
    """The turns that a request refers to, as far as they are stored."""

    previous: Turn | None = None
    quoted: Mapping[str, Message] = field(default_factory=dict)
    """Responses, by turn."""


NO_EARLIER_TURNS = EarlierTurns()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferringParser:
    """A parser of requests that may refer to earlier turns instead of repeating them."""

    references: Callable[[Mapping[str, Any]], References]
    """The turns that a body refers to. Raises RequestError 400 for too many."""
    parse: Callable[[Any, RequestLimits, EarlierTurns], ModelRequest]


Parse = Callable[[Any, RequestLimits], ModelRequest] | ReferringParser
"""Reads a body's JSON. Raises RequestError 400 with the client's name of the field in `param`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCount:
    """A `POST` route that counts the tokens of a request's prompt. Nothing is sampled or recorded."""

    path: str
    parse: Parse
    body: Callable[[int], Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponses:
    """A `GET` route that returns a stored response to the key that it was made for."""

    path: str
    """`{response}` stands for the response's id, or for its end."""
    body: Callable[[Turn], Mapping[str, Any]]


ExtraRoute = TokenCount | StoredResponses
"""A further route of a dialect. The gateway has one endpoint for each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One client protocol. The application serves a list of these."""

    name: str
    path: str
    """Its route. Errors at this path and below it are sent in this dialect."""
    parse: Parse
    encoder: Callable[[ModelRequest, ResponseHead], Encoder]
    error_body: Callable[[RequestError], Mapping[str, Any]]
    """The JSON body of an error, with the client's name of a `Field` in `param`."""
    extra_routes: tuple[ExtraRoute, ...] = ()
    header: str | None = None
    """A header that its clients alone send: errors at paths of no dialect, too, reach them in this one."""
    request_id_header: str = "x-request-id"
    """The header of every response that carries the request's id, which is also in the log."""

    def owns(self, path: str) -> bool:
        """Whether a request at `path` speaks this dialect."""
        return path == self.path or path.startswith(self.path + "/")


EVENT_STREAM = "text/event-stream; charset=utf-8"

COMMENT = b": ping\n\n"
"""Not an event: readers of server-sent events skip lines that begin with a colon."""


def sealed(turn: str) -> str:
    """A mark that stands for a thought's encrypted form: clients drop thoughts without one, or return them as
    text."""
    return base64.b64encode(turn.encode()).decode()


def data_event(data: Mapping[str, Any]) -> bytes:
    """One `data:` event. JSON never contains raw line breaks, so one line is enough."""
    return b"data: " + one_line(orjson.dumps(data)) + b"\n\n"


def named_event(data: Mapping[str, Any]) -> bytes:
    """An event with the `type` of its data as its name, which some clients require."""
    return f"event: {data['type']}\n".encode() + data_event(data)


class Frame(NamedTuple):
    """The bytes of an event around its text. Most events of a stream differ only in this text."""

    before: bytes
    after: bytes

    @classmethod
    def of(cls, event: bytes) -> Frame:
        """The frame of an event: the text of its last field that is empty will be replaced."""
        before, _, after = event.rpartition(b'":""')  # in no text: there a quotation mark is escaped
        return cls(before + b'":', after)

    def around(self, text: str) -> bytes:
        return self.before + one_line(orjson.dumps(text)) + self.after


class BlockEncoder(ABC):
    """One choice as blocks, of which one is open at a time: a stream of named events, or one JSON body.

    A body holds only calls that were completed.
    """

    KINDS: ClassVar[Mapping[type[ResponseEvent], str]]
    """The kind of block that an event adds to."""

    def __init__(
        self, *, stream: bool, heartbeat: bytes, hidden: tuple[type[ResponseEvent], ...] = ()
    ) -> None:
        """`hidden`: the events that are not sent."""
        self.content_type = EVENT_STREAM if stream else "application/json"
        self.heartbeat = heartbeat if stream else b""
        self._stream, self._hidden, self._begun = stream, hidden, False
        self._blocks: list[JsonObject] = []
        self._open = ""
        """The kind of the open block; empty if there is none."""
        self._grown_by: type[TextDelta] | type[ReasoningDelta] | tuple[()] = ()
        """The events that only add text to it."""
        self._texts: list[str] = []
        """Its text or arguments so far."""
        self._calls = SentCalls()
        self._frames: dict[int, Frame] = {}
        """Events that add text to a block, by the number of blocks."""
        self._events: list[bytes] = []

    def begin(self, version: int) -> bytes:
        self._begun = True
        self._start()
        return self._sent()

    def delta(self, delta: ChoiceDelta) -> bytes:
        if len(delta.events) == 1 and not delta.logprobs:
            event = delta.events[0]
            if isinstance(event, self._grown_by):
                self._texts.append(event.text)
                return self._framed(event.text) if self._stream else b""
        begun = b"" if self._begun else self.begin(delta.version)
        logprobs = delta.logprobs
        for event in delta.events:
            if isinstance(event, TextDelta | ReasoningDelta):
                if not isinstance(event, self._hidden):
                    if not isinstance(event, self._grown_by):
                        self._enter(event)
                    self._add(event.text, logprobs)
                if isinstance(event, TextDelta):  # the first one has the log-probs
                    logprobs = ()
            elif self._stream or isinstance(event, ParsedCall):
                begins, arguments = self._calls.add(event)
                if begins:
                    self._enter(event)
                if arguments:
                    self._add(arguments)
                if isinstance(event, ParsedCall):
                    self._close(complete=True)
        return begun + self._sent()

    def _enter(self, event: ResponseEvent) -> None:
        """Open an event's block. An open call was not completed, or it would have been closed."""
        self._close(complete=self._open != self.KINDS[ParsedCall])
        self._open, self._texts = self.KINDS[type(event)], []
        self._grown_by = type(event) if isinstance(event, TextDelta | ReasoningDelta) else ()
        self._begin_block(event)

    def _add(self, text: str, logprobs: Sequence[TokenLogprob] = ()) -> None:
        self._texts.append(text)
        self._grow(text, logprobs)

    def _close(self, *, complete: bool) -> None:
        if self._open:
            self._end_block("".join(self._texts), complete=complete)
            self._open, self._grown_by = "", ()

    def _framed(self, text: str) -> bytes:
        """The event that adds a text to the open block."""
        frame = self._frames.get(len(self._blocks))
        if frame is None:
            self._grow("", ())
            frame = self._frames[len(self._blocks)] = Frame.of(self._sent())
        return frame.around(text)

    def _send(self, kind: str, **fields: Any) -> None:
        if self._stream:
            self._events.append(named_event({"type": kind, **fields}))

    def _sent(self) -> bytes:
        events, self._events = self._events, []
        return b"".join(events)

    @abstractmethod
    def _start(self) -> None:
        """Send what comes before all blocks."""

    @abstractmethod
    def _begin_block(self, event: ResponseEvent) -> None: ...

    @abstractmethod
    def _grow(self, text: str, logprobs: Sequence[TokenLogprob]) -> None:
        """Send more text or arguments of the open block."""

    @abstractmethod
    def _end_block(self, text: str, *, complete: bool) -> None:
        """End the open block with its whole text or arguments."""
