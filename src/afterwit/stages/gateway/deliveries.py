"""Tells the store which responses reached their clients, together with what it is asked to do next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from afterwit.core.errors import StoreError
from afterwit.store import AsyncStore, Store

WITHIN_S = 0.01
"""Seconds that a delivery waits for another call of the store. A process that is killed meanwhile forgets it:
the client that asks again then gets a turn that takes the place of the first, as if it had not heard it."""

Failed = Callable[[StoreError], None]


class Deliveries:
    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._untold: list[str] = []
        self._telling = 0
        """How many of them are being told."""
        self._riding: asyncio.Future[None] | None = None

    def tell(self, turns: Iterable[str], failed: Failed) -> None:
        """The clients have these turns whole: every later call of the store finds them so.

        `failed` hears what the store says instead; what it refuses is told with what comes next.
        """
        self._untold += turns
        if self._riding is None:
            self._ride(failed)

    def _ride(self, failed: Failed) -> None:
        try:
            self._riding = self._store.along(self._tell, within_s=WITHIN_S)
        except StoreError as error:
            failed(error)
        else:
            self._riding.add_done_callback(lambda riding: self._told(riding, failed))

    def _tell(self, store: Store) -> None:
        """In the store's thread, perhaps more than once: more turns may come meanwhile."""
        telling = self._untold.copy()
        store.delivered(telling)
        self._telling = len(telling)

    def _told(self, riding: asyncio.Future[None], failed: Failed) -> None:
        self._riding = None
        error = riding.exception()
        if isinstance(error, StoreError):
            failed(error)
            return
        if error is not None:
            raise error
        del self._untold[: self._telling]
        if self._untold:
            self._ride(failed)
