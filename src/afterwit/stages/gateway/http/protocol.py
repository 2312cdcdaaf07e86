"""uvicorn's HTTP protocol with limits on headers and connections, and an answer to half-closing clients."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from afterwit.core.errors import RequestError
from afterwit.stages.gateway.http.connections import ConnectionLimits, IdleConnections
from afterwit.stages.gateway.http.gathering import GatheringTransport

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
PROBES = 2
"""The first makes a peer that is gone send a reset; the second write then fails."""

OFFER = frozenset({b"upgrade", b"http2-settings"})
"""Headers, and tokens of `Connection`, that offer another protocol."""

ErrorBody = Callable[[str, RequestError], Mapping[str, Any]]
"""The JSON body of an error at a path."""


class HttpProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self, *, limits: ConnectionLimits, idle: IdleConnections, error_body: ErrorBody, **uvicorn: Any
    ) -> None:
        super().__init__(**uvicorn)
        self._limits, self._idle, self._error_body = limits, idle, error_body
        self._unanswered: deque[RequestResponseCycle] = deque()
        """Requests without a whole answer, the one that is being answered first: clients may pipeline."""
        self._head_bytes = 0
        """Bytes of the headers that are being received."""
        self._in_body = False
        """The headers are complete: what comes as a header now is a trailer."""
        self._head_timer: asyncio.TimerHandle | None = None
        """Runs until the headers are complete."""
        self._probe_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        """Runs while the client does not read what was sent."""
        self._refusal = RequestError(400, "invalid_http", "This is not an HTTP/1.1 request.")
        self._offers_upgrade = False
        """The request that is being read offers another protocol."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        super().connection_made(GatheringTransport(transport, self.loop))
        self._idle.add(self)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers()
        self._stop_unread_timer()
        self._idle.discard(self)
        for cycle in self._unanswered:  # uvicorn tells the latest only
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        try:
            self._feed(data)
        except HttpParserError:
            self.send_400_response("")
            return
        if self._head_timer is not None:
            self._count(len(data))
            if self._head_bytes > self._limits.header_bytes:
                self.send_400_response("")

    def _feed(self, data: bytes) -> None:
        """Parse a piece of input. An offered upgrade, such as h2c, is ignored (RFC 9110, section 7.8).

        The parser stops behind the headers of such a request. Another one gets them without the offer.
        """
        while data:
            try:
                self.parser.feed_data(data)
                return
            except HttpParserUpgrade as offered:
                if not self._offers_upgrade:
                    return
                data = self._head_without_offer() + data[offered.args[0] :]
                self.parser = HttpRequestParser(self)

    def _head_without_offer(self) -> bytes:
        lines = [b"%s %s HTTP/1.1" % (self.parser.get_method(), self.url)]
        for name, value in self.headers:
            if name == b"connection":
                value = b",".join(token for token in value.split(b",") if token.strip().lower() not in OFFER)
            if name not in OFFER and value:
                lines.append(name + b": " + value)
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_body, self._head_bytes = False, 0
        self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Trailers are counted, and say nothing: a proxy in front may have checked the headers alone."""
        if not self._in_body:
            super().on_header(name, value)
        self._count(len(name) + len(value))
        if self._head_bytes > self._limits.header_bytes:
            raise ValueError("the headers are too large")  # the parser stops: send_400_response follows

    def on_headers_complete(self) -> None:
        self._in_body = True
        self._stop_timers()
        self._idle.discard(self)
        self._offers_upgrade = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._offers_upgrade:
            super().on_headers_complete()
            self._unanswered.append(self.cycle)

    def on_message_complete(self) -> None:
        if not self._offers_upgrade:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._unanswered.popleft()
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._idle.add(self)

    def eof_received(self) -> bool:  # type: ignore[override] # uvicorn's always closes
        """Whether to keep the connection open for the answer.

        It stays open if the request is complete and no byte of the answer was sent. After the first byte, the
        end of input means that the client left.
        """
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.response_started:
            return False
        cycle.keep_alive = False
        self._probe(PROBES)
        return True

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read as a request, and close. Called by uvicorn too."""
        if self.transport.is_closing():
            return
        error = self._refusal
        url = getattr(self, "url", b"").decode("latin-1").partition("?")[0]
        body = orjson.dumps(self._error_body(url, error))
        headers = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[error.status] + headers % len(body) + body)
        self.transport.close()

    def cut(self) -> None:
        """Close the connection now: it has no request. Its client gets what was sent, if it reads on."""
        self._stop_timers()
        if self.transport.get_write_buffer_size():
            self._await_reading()
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading()

    def _await_reading(self) -> None:
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(self._limits.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread_timer()

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.header_bytes:
            message = f"The request's headers are larger than {self._limits.header_bytes} bytes."
            self._refusal = RequestError(431, "headers_too_large", message)

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.header_timeout_s, self.cut)

    def _stop_timers(self) -> None:
        for timer in (self._head_timer, self._probe_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._probe_timer = None

    def _probe(self, left: int) -> None:
        """Find out whether a client that ended its input still reads, until the answer begins.

        A client that half-closed skips a `100 Continue`. If the client is gone, writing fails.
        """
        self._probe_timer = self.loop.call_later(self._limits.probe_s, self._send_probe, left)

    def _send_probe(self, left: int) -> None:
        if self.cycle.response_started or self.transport.is_closing():
            return
        self.transport.write(CONTINUE)
        if left > 1:
            self._probe(left - 1)
