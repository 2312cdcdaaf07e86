"""Requests in flight: the limits behind 429, and how a server waits for them or cuts them short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from afterwit.core.errors import RequestError


class InFlight:
    """Counts places: one for each request whose body has come, then one for each choice until its end.

    Beside them it counts the bytes of the bodies: memory is taken before anything is known of a request. A
    body that is still coming has no place, because its sender decides how long that takes.
    """

    def __init__(self, limit: int, most_bytes: int) -> None:
        self.limit = limit
        self.count = 0
        self._most_bytes = most_bytes
        self._bytes = 0
        self.draining = False
        self._timeouts: set[asyncio.Timeout] = set()
        self._coming: dict[asyncio.Timeout, None] = {}
        """Bodies that are being received, oldest first."""
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def admit(self) -> Iterator[Admission]:
        """Hold a place for one request. Raises 503 while draining, 429 if there is none."""
        self._check_open()
        admission = Admission(self)
        admission.take(1)
        try:
            yield admission
        finally:
            self._add(-admission.places)

    def check(self) -> None:
        """Raise what `admit` would raise now: then a body need not be received."""
        self._check_open()
        Admission(self).check(1)

    def _check_open(self) -> None:
        if self.draining:
            raise RequestError(503, "draining", "The server is shutting down; running answers are finishing.")

    @asynccontextmanager
    async def receiving(self) -> AsyncIterator[None]:
        """Receive a body. Of more than `limit`, the one that came first is cut off: RequestError 408."""
        try:
            async with asyncio.timeout(None) as patience:
                self._coming[patience] = None
                if len(self._coming) > self.limit:
                    oldest = next(iter(self._coming))
                    del self._coming[oldest]
                    oldest.reschedule(asyncio.get_running_loop().time())
                try:
                    yield
                finally:
                    self._coming.pop(patience, None)
        except TimeoutError as error:
            message = "The request's body took too long, and others wait to be received."
            raise RequestError(408, "body_timeout", message) from error

    @contextmanager
    def body(self) -> Iterator[Callable[[int], None]]:
        """Hold the bytes of one body, told piece by piece. More than fit beside others raise 429."""
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            others = self._bytes - held
            if others and self._bytes + size > self._most_bytes:
                raise RequestError(429, "queue_full", "Too much is being read at once; try again shortly.")
            self._bytes += size
            held += size

        try:
            yield hold
        finally:
            self._bytes -= held

    def _add(self, places: int) -> None:
        self.count += places
        if self.count:
            self._idle.clear()
        else:
            self._idle.set()

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """Give the body this many seconds, less if `cut` is called. Raises TimeoutError."""
        async with asyncio.timeout(seconds) as timeout:
            self._timeouts.add(timeout)
            try:
                yield
            finally:
                self._timeouts.discard(timeout)

    def cut(self) -> None:
        """End the time of everything in flight now."""
        now = asyncio.get_running_loop().time()
        for timeout in self._timeouts:
            timeout.reschedule(now)

    async def drain(self) -> None:
        """Refuse new requests; return when nothing is in flight."""
        self.draining = True
        await self.idle()

    async def idle(self) -> None:
        """Return when nothing is in flight."""
        await self._idle.wait()


class Admission:
    """One request's places."""

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self.places = 0

    def check(self, places: int) -> None:
        """Raise 429 if this many do not fit beside the others; alone, any number fits."""
        others = self._in_flight.count - self.places
        if others and others + places > self._in_flight.limit:
            raise RequestError(429, "queue_full", f"{others} answers are under way; try again shortly.")

    def take(self, places: int) -> None:
        """Hold this many instead. Raises what `check` raises."""
        self.check(places)
        self._in_flight._add(places - self.places)
        self.places = places
