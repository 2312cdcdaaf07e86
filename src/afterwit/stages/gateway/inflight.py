"""How many choices are under way: the limit behind 429, and what a drain waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from afterwit.core.errors import RequestError


class InFlight:
    """Counts choices from their acceptance to the end of their response."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self.draining = False
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

    async def drain(self) -> None:
        """Take nothing new; return when everything under way has ended."""
        self.draining = True
        await self.idle()

    async def idle(self) -> None:
        """Return when nothing is under way."""
        await self._idle.wait()
