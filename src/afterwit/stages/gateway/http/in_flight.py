"""What is under way: the limit behind 429, what a drain waits for, and how it is cut short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from afterwit.core.errors import RequestError


class InFlight:
    """Counts choices from their acceptance to the end of their response."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self.draining = False
        self._timeouts: set[asyncio.Timeout] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def hold(self, choices: int) -> Iterator[None]:
        """Hold places for a request's choices. Raises 503 while draining, 429 where they do not fit."""
        if self.draining:
            raise RequestError(503, "draining", "The server is shutting down; running answers are finishing.")
        if self.count and self.count + choices > self.limit:
            raise RequestError(429, "queue_full", f"{self.count} answers are under way; try again shortly.")
        self.count += choices
        self._idle.clear()
        try:
            yield
        finally:
            self.count -= choices
            if not self.count:
                self._idle.set()

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """Give what is inside so many seconds, less if `cut` is called. Raises TimeoutError."""
        async with asyncio.timeout(seconds) as timeout:
            self._timeouts.add(timeout)
            try:
                yield
            finally:
                self._timeouts.discard(timeout)

    def cut(self) -> None:
        """End the time of everything under way now."""
        now = asyncio.get_running_loop().time()
        for timeout in self._timeouts:
            timeout.reschedule(now)

    async def drain(self) -> None:
        """Take nothing new; return when everything under way has ended."""
        self.draining = True
        await self.idle()

    async def idle(self) -> None:
        """Return when nothing is under way."""
        await self._idle.wait()
