"""A dialect: everything that the gateway knows about one client protocol, in one object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from afterwit.dialects.request import ModelRequest, RequestLimits
from afterwit.dialects.response import ChoiceDelta, ChoiceEnd, ResponseHead, Usage
from afterwit.errors import RequestError
from afterwit.turn import Message, Turn

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferringParser:
    """A parser of requests that may refer to earlier turns instead of repeating them."""

    references: Callable[[Mapping[str, Any]], References]
    """The turns that a body refers to. Raises RequestError 400 for too many."""
    parse: Callable[[Any, RequestLimits, EarlierTurns], ModelRequest]
    """Reads a body, given the turns that belong to its sender's key."""


Parse = Callable[[Any, RequestLimits], ModelRequest] | ReferringParser
"""Reads a body's JSON. Raises RequestError 400 with the client's name of the field in `param`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCount:
    """A `POST` route that counts the tokens of a request's prompt. Nothing is sampled or recorded."""

    path: str
    parse: Parse
    """As `Dialect.parse`."""
    body: Callable[[int], Mapping[str, Any]]
    """The JSON body for a number of tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponses:
    """A `GET` route that returns a stored response to the key that it was made for."""

    path: str
    """With the response's id as `{response}`."""
    body: Callable[[Turn], Mapping[str, Any]]
    """The JSON body of a response."""


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
    """A new encoder for one response, streamed or whole as the request asks."""
    error_body: Callable[[RequestError], Mapping[str, Any]]
    """The JSON body of an error, with the client's name of a `Field` in `param`."""
    extra_routes: tuple[ExtraRoute, ...] = ()
    """Further routes below `path`."""
    request_id_header: str = "x-request-id"
    """The header of every response that carries the request's id, which is also in the log."""

    def owns(self, path: str) -> bool:
        """Whether a request at `path` speaks this dialect."""
        return path == self.path or path.startswith(self.path + "/")
