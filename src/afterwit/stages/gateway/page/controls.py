"""What the page's buttons do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from afterwit.checkpoints import Versions, roll_back
from afterwit.core.version import Version
from afterwit.store import AsyncStore


class Controls(Protocol):
    """The buttons."""

    async def roll_back(self, target: int) -> Version:
        """Take learning back to a version, and return the version that was made.

        Raises SettingError if there is nothing to return to, VersionDamaged and StoreError.
        """
        ...


class HomeControls:
    """The buttons over a home: they do what the commands of the same names do."""

    def __init__(self, store: AsyncStore, versions: Versions, now: Callable[[], float]) -> None:
        self._store, self._versions, self._now = store, versions, now

    async def roll_back(self, target: int) -> Version:
        """In a thread: the files of a version are read to the end before it is restored."""
        made = await asyncio.to_thread(roll_back, self._versions, target, now=self._now())
        await self._store.call(lambda store: store.commit_version(made, now=self._now()))
        return made
