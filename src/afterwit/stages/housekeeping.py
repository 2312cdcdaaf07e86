"""Housekeeping: turns that nothing answered end, the store stays within its limits, the disk is watched."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from afterwit.store import AsyncStore, Pruned

LOW_DISK_BYTES = 2**30
"""Below this much free space a version may not fit: it is said while there is still time."""
PRUNE_PASSES = 16
"""Calls of `prune` at one time: the rest waits for the next step, so that others can write in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is kept, and for how long."""

    next_state_s: float
    max_age_s: float
    max_bytes: int


class Keep:
    """One step ends what is over and says how much room there is."""

    def __init__(
        self,
        store: AsyncStore,
        home: Path,
        limits: Limits,
        *,
        tell: Callable[[bool, str], Awaitable[object]],
        now: Callable[[], float],
    ) -> None:
        self._store, self._home, self._limits = store, home, limits
        self._tell, self._now = tell, now

    async def step(self) -> bool:
        """Expire, prune, look at the disk. Never anything left to do at once."""
        now = self._now()
        oldest = now - self._limits.next_state_s
        await self._store.call(lambda store: store.expire_open(older_than=oldest, now=now))
        pruned = await self._prune(now)
        await self._tell(*_verdict(pruned, shutil.disk_usage(self._home).free))
        return False

    async def _prune(self, now: float) -> Pruned:
        for _ in range(PRUNE_PASSES):
            pruned = await self._store.call(
                lambda store: store.prune(
                    now=now, max_age_s=self._limits.max_age_s, max_bytes=self._limits.max_bytes
                )
            )
            if not pruned.turns:
                break
        return pruned


def _verdict(pruned: Pruned, free: int) -> tuple[bool, str]:
    size = f"the store holds {pruned.size / 2**20:.0f} MiB, the disk has {free / 2**30:.1f} GiB free"
    if free < LOW_DISK_BYTES:
        return False, f"{size}: too little for new versions; free some space or lower learner.keep_versions"
    if pruned.over_budget:
        return False, f"{size}: turns that wait exceed store.keep_gb; raise it, or see why they wait"
    return True, size
