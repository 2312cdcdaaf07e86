"""The gateway on a socket: uvicorn, started and stopped by the process that owns it."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, cast

import uvicorn
from starlette.types import Receive, Scope, Send

from afterwit.core.errors import RequestError, SettingError
from afterwit.stages.gateway.http.connections import ConnectionLimits, IdleConnections
from afterwit.stages.gateway.http.in_flight import InFlight
from afterwit.stages.gateway.http.protocol import HttpProtocol

log = logging.getLogger("afterwit.gateway")

CLOSE_S = 1
"""Seconds that connections get to close after the drain."""
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
