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
        self._telling = asyncio.Lock()

    async def tell(self, turns: Iterable[str]) -> None:
        """The clients have these turns whole. Stored on return; what the store refuses, the next call tells.

        Raises StoreError.
        """
        self._untold += turns
        async with self._telling:
            untold, self._untold = self._untold, []
            if not untold:  # the call that came before told it
                return
            try:
                await self._store.call(lambda store: store.delivered(untold))
            except StoreError:
                self._untold = untold + self._untold
                raise
