"""What a response holds while it is sampled: the weights that it began with, until they are taken away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from afterwit.core.adapters import SHARED
from afterwit.core.errors import EngineUnavailable
from afterwit.engines.server.server import CUT, Piece

BROKEN_OFF = "the server broke off a response"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Weights on the server."""

    version: int
    folder: Path
    name: str | None
    """The adapter's name on the server; None: the model without one."""
    adapter: str = SHARED
    """Whose version it is."""


@dataclass(slots=True, eq=False)
class Lease:
    """The use of weights by one response. `cut`: they were taken away."""

    of: Loaded
    cut: bool = False
    _waiting: asyncio.Task[Any] | None = field(default=None)
    """Who waits for the next piece."""

    def end(self) -> None:
        """Take the weights away: no piece comes any more, and one that is waited for is given up."""
        if not self.cut and self._waiting is not None:
            self._waiting.cancel()
        self.cut = True

    async def pieces(self, stream: AsyncGenerator[Piece, None]) -> AsyncGenerator[Piece, None]:
        """The stream's pieces, up to the one that ends it or until the lease is cut.

        EngineUnavailable if the stream breaks off.
        """
        async with aclosing(stream):
            while not self.cut:
                try:
                    piece = await self._next(stream)
                except StopAsyncIteration as error:
                    raise EngineUnavailable(BROKEN_OFF) from error
                if piece is None:
                    return
                yield piece
                if piece.ended == CUT and not self.cut:
                    raise EngineUnavailable(BROKEN_OFF)
                if piece.ended:
                    return

    async def _next(self, stream: AsyncGenerator[Piece, None]) -> Piece | None:
        """The next piece; None if the lease is cut before it comes. A time limit each would cost more."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._waiting, cancelled_before = task, task.cancelling()
        try:
            return await anext(stream)
        except asyncio.CancelledError:
            if not self.cut or task.cancelling() > cancelled_before + 1:
                raise
            return None
        finally:
            self._waiting = None
            if self.cut:
                task.uncancel()


class Leases:
    """The leases of all responses under way."""

    def __init__(self) -> None:
        self._held: set[Lease] = set()

    @contextmanager
    def of(self, loaded: Loaded) -> Iterator[Lease]:
        """A lease for as long as the context lasts."""
        lease = Lease(loaded)
        self._held.add(lease)
        try:
            yield lease
        finally:
            self._held.remove(lease)

    def uses(self, loaded: Loaded) -> bool:
        """Whether a response is under way with these weights."""
        return any(lease.of is loaded for lease in self._held)

    def end(self) -> None:
        """Take the weights away from every response."""
        for lease in self._held:
            lease.end()
