"""The gateway on a socket: uvicorn, started and stopped by the process that owns it."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import orjson
import uvicorn
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from afterwit.errors import RequestError, SettingError
from afterwit.gateway.limits import InFlight

log = logging.getLogger("afterwit.gateway")


CLOSE_S = 1
"""Seconds that connections get to close after the drain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """They apply before the key is checked, so they hold for anybody who connects."""

    header_bytes: int = 64 * 1024
    """Bytes of a request line with its headers; one more is a 431. Real clients send at most 4 kB."""
    header_timeout_s: float = 20.0
    """Seconds until the headers must be complete, from the connection or from their first byte."""
    idle_connections: int = 512
    """Connections without a request; one more closes the oldest. Less than half of 1,024 open files."""
    keep_alive_s: int = 75
    """Seconds that an idle connection stays open: longer than most pauses between an agent's requests."""
    unread_s: float = 120.0
    """Seconds that a client may leave what was sent to it unread, before it is cut off."""
    probe_s: float = 1.0
    """Seconds between the two probes that tell a client which half-closed from one that left."""


DEFAULT_LIMITS = ConnectionLimits()


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket bound to the address; port 0 takes a free one. SettingError if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        why = "is in use already" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise SettingError(f"{host}:{port} {why}; choose another: --host, --port, or serve.port") from error
    sock.setblocking(False)
    return sock


class Application(Protocol):
    """What a Listener serves. It counts its requests, so that a stop can wait for them."""

    @property
    def in_flight(self) -> InFlight: ...

    def error_body(self, path: str, error: RequestError) -> Mapping[str, Any]: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class Listener:
    """Serves an application on a socket until it is stopped. It handles no signals."""

    def __init__(
        self, app: Application, sock: socket.socket, limits: ConnectionLimits = DEFAULT_LIMITS
    ) -> None:
        self._app, self._sock = app, sock
        protocol = partial(
            HttpProtocol,
            limits=limits,
            idle=IdleConnections(limits.idle_connections),
            error_body=app.error_body,
        )
        self._server = _Server(
            uvicorn.Config(
                app,
                lifespan="off",
                http=cast(type[asyncio.Protocol], protocol),
                timeout_keep_alive=limits.keep_alive_s,
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                timeout_graceful_shutdown=CLOSE_S,
            )
        )
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The base URL for clients, `/v1` included."""
        host, port = self._sock.getsockname()[:2]
        return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"

    async def start(self) -> None:
        """Return when it accepts connections. Raises SettingError if another process took the address."""
        self._task = asyncio.ensure_future(self._server.serve(sockets=[self._sock]))
        ready = asyncio.ensure_future(self._server.ready.wait())
        await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._task.done():
            try:
                await self._task
            except OSError as error:
                raise SettingError(f"{self.url}: {error.strerror}; choose another address") from error

    async def stop(self, drain_s: float) -> None:
        """Refuse new requests, give running ones `drain_s` seconds, end them as at a length limit, close."""
        try:
            async with asyncio.timeout(drain_s):
                await self._app.in_flight.drain()
        except TimeoutError:
            log.warning("%d answers were cut short by the shutdown", self._app.in_flight.count)
            self._app.in_flight.cut()
        self._server.should_exit = True
        if self._task is not None:
            await self._task


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, and with an event for its start."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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


class Connection(Protocol):
    """What the registry needs of a connection."""

    def cut(self) -> None:
        """Close it now."""


class IdleConnections:
    """Connections without a request, oldest first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._oldest_first: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._oldest_first)

    def add(self, connection: Connection) -> None:
        """This connection waits for a request. If there are too many, the oldest is cut."""
        self._oldest_first[connection] = None
        if len(self._oldest_first) > self._limit:
            oldest = next(iter(self._oldest_first))
            self.discard(oldest)
            oldest.cut()

    def discard(self, connection: Connection) -> None:
        """This connection has a request, or is gone."""
        self._oldest_first.pop(connection, None)


MOST_BYTES = 32 * 1024
"""That wait; more leave at once, so that a client which does not read is noticed as early as without this."""


class GatheringTransport(asyncio.Transport):
    """Each write of a socket is a call of the system, and takes as long as the gateway's own work on a token.

    So the head and the body of an answer, and tokens that are there together, are written by one.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport, self._loop = transport, loop
        self._waiting: list[bytes] = []
        self._bytes = 0

    def write(self, data: Any) -> None:
        """Written when those who run now have had their turn. `data` must not change until then."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if waiting and not self._transport.is_closing():
            self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))

    def close(self) -> None:
        """Close once all is sent."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close now; what was not sent is lost."""
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        return self._bytes + self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()
