"""The gateway on a socket: uvicorn, with limits on what a connection may cost before its key is known."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Mapping
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
from afterwit.text import counted

log = logging.getLogger("afterwit.gateway")

LOOPBACK = ["127.0.0.1", "::1"]
"""The proxies that may set the client's address and scheme, whatever the environment names."""

CLOSE_S = 1
"""Seconds that connections get to close after the drain."""

OFFER = frozenset({b"upgrade", b"http2-settings"})
"""Headers, and tokens of `Connection`, that offer another protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits that apply before the key is checked, to anyone who connects."""

    header_bytes: int = 64 * 1024
    """Bytes of a request line with its headers; more is a 431. Real clients send at most 4 kB."""
    header_timeout_s: float = 20.0
    """Seconds until the headers must be complete, from the connection or from their first byte."""
    idle_connections: int = 512
    """Connections without a request; one more closes the oldest. Less than half of 1,024 open files."""
    keep_alive_s: int = 75
    """Seconds that an idle connection stays open: longer than most pauses between an agent's requests."""
    unread_s: float = 120.0
    """Seconds that a client may leave a response unread before it is cut off."""


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
    """A Listener's application. It counts its requests, so that a stop can wait for them."""

    @property
    def in_flight(self) -> InFlight: ...

    def error_body(self, path: str, error: RequestError) -> Mapping[str, Any]: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class Listener:
    """Serves an application on a socket until it is stopped. It handles no signals."""

    def __init__(
        self, app: Application, sock: socket.socket, limits: ConnectionLimits = ConnectionLimits()
    ) -> None:
        self._app, self._sock = app, sock
        protocol = partial(Connection, limits=limits, idle={}, error_body=app.error_body)
        config = uvicorn.Config(
            app,
            lifespan="off",
            http=cast(type[asyncio.Protocol], protocol),
            timeout_keep_alive=limits.keep_alive_s,
            log_config=None,
            access_log=False,
            server_header=False,
            ws="none",
            forwarded_allow_ips=LOOPBACK,
            timeout_graceful_shutdown=CLOSE_S,
        )
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._running: asyncio.Task[None] | None = None

    @property
    def root(self) -> str:
        """The address, without a path."""
        host, port = self._sock.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def url(self) -> str:
        """The base URL for clients, `/v1` included."""
        return f"{self.root}/v1"

    async def start(self) -> None:
        """Return when it accepts connections. Raises SettingError if another process took the address."""
        try:
            await self._server.startup(sockets=[self._sock])
        except OSError as error:
            raise SettingError(f"{self.url}: {error.strerror}; choose another address") from error
        self._running = asyncio.create_task(self._server.main_loop())

    async def stop(self, drain_s: float) -> None:
        """Refuse new requests, give running ones `drain_s` seconds, end them as at a length limit, close."""
        try:
            async with asyncio.timeout(drain_s):
                await self._app.in_flight.drain()
        except TimeoutError:
            log.warning("the shutdown cuts %s short", counted(self._app.in_flight.count, "answer"))
            self._app.in_flight.cut()
        if self._running is not None:
            self._server.should_exit = True
            await self._running
            await self._server.shutdown(sockets=[self._sock])


class Connection(HttpToolsProtocol):
    """uvicorn's connection with limits, and with its own errors in JSON."""

    def __init__(
        self,
        *,
        limits: ConnectionLimits,
        idle: dict[Connection, None],
        error_body: Callable[[str, RequestError], Mapping[str, Any]],
        **uvicorn: Any,
    ) -> None:
        super().__init__(**uvicorn)
        self._limits, self._error_body = limits, error_body
        self._idle = idle
        """All connections without a request, oldest first."""
        self._head_bytes = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """`head`: the headers are coming, and must be complete. `unread`: the client must have read."""
        self._refusal = RequestError(400, "invalid_http", "This is not an HTTP/1.1 request.")
        self._offers_upgrade = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        super().connection_made(transport)
        self._begin_idling()
        self._start("head", self._limits.header_timeout_s, self._cut)

    def connection_lost(self, exc: Exception | None) -> None:
        for name in list(self._timers):
            self._stop(name)
        self._idle.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse some input. An offered upgrade is ignored (RFC 9110, section 7.8): Java's client offers h2c.

        The parser stops at the headers of such a request; a new one reads them again without the offer.
        """
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        size = len(data)
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    break
                except HttpParserUpgrade as offered:
                    if not self._offers_upgrade:
                        break
                    data = self._head_without_offer() + data[offered.args[0] :]
                    self.parser = HttpRequestParser(self)
            if "head" in self._timers:
                self._count(size)
        except HttpParserError:
            self.send_400_response("")

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
        self._head_bytes = 0
        self._start("head", self._limits.header_timeout_s, self._cut)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Trailers count, but are ignored: a proxy in front may have checked the headers only."""
        if "head" in self._timers:
            super().on_header(name, value)
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._stop("head")
        self._idle.pop(self, None)
        self._offers_upgrade = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._offers_upgrade:
            super().on_headers_complete()
            if self.scope["http_version"] == "1.0":
                self.cycle.__class__ = _UnframedCycle

    def on_message_complete(self) -> None:
        if not self._offers_upgrade:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._begin_idling()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's answer to what it cannot parse; it closes the connection."""
        if self.transport.is_closing():
            return
        path = getattr(self, "url", b"").decode("latin-1").partition("?")[0]
        body = orjson.dumps(self._error_body(path, self._refusal))
        headers = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[self._refusal.status] + headers % len(body) + body)
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start("unread", self._limits.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("unread")

    def _count(self, size: int) -> None:
        """Stop the parser if the headers are too large: uvicorn then calls `send_400_response`."""
        self._head_bytes += size
        most = self._limits.header_bytes
        if self._head_bytes > most:
            message = f"The request's headers are larger than {most} bytes."
            self._refusal = RequestError(431, "headers_too_large", message)
            raise HttpParserError(message)

    def _begin_idling(self) -> None:
        self._idle[self] = None
        if len(self._idle) > self._limits.idle_connections:
            next(iter(self._idle))._cut()

    def _cut(self) -> None:
        """Close the connection, which has no request. Its client gets what was sent if it reads on."""
        self._idle.pop(self, None)
        self._stop("head")
        if self.transport.get_write_buffer_size():
            self._start("unread", self._limits.unread_s, self.transport.abort)
        self.transport.close()

    def _start(self, name: str, seconds: float, act: Callable[[], object]) -> None:
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(seconds, act)

    def _stop(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()


class _UnframedCycle(RequestResponseCycle):
    """A client of HTTP/1.0 cannot read chunks: the end of the connection ends a body of unknown length."""

    async def send(self, message: Any) -> None:
        self.chunked_encoding = False
        self.expected_content_length = len(message.get("body", b""))
        await super().send(message)
