"""Tells the store which responses reached their clients: those that end meanwhile wait for one call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from afterwit.core.errors import StoreError
from afterwit.store import AsyncStore


class Deliveries:
    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._untold: list[str] = []
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        """The call that will tell what is untold, once the running one has ended."""

    async def tell(self, turns: Iterable[str]) -> None:
        """The clients have these turns whole. Stored on return; what the store refuses, the next call tells.

        Raises StoreError.
        """
        self._untold += turns
        if self._next is None:
            self._next = asyncio.ensure_future(self._tell_behind(self._running))
        await asyncio.shield(self._next)

    async def _tell_behind(self, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait({running})
        self._running, self._next = self._next, None
        untold, self._untold = self._untold, []
        try:
            await self._store.call(lambda store: store.delivered(untold))
        except StoreError:
            self._untold = untold + self._untold
            raise
