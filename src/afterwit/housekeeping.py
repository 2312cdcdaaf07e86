"""Housekeeping: ends turns that nothing answered, keeps the store within its limits, watches the disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from afterwit.retry import BackOff
from afterwit.store import AsyncStore, Pruned, Store
from afterwit.worker import Report, Signals, StageHealth, work

STAGE = "housekeeping"

LOW_DISK_BYTES = 2**30
"""Below this much free space a new version may not fit, so the status warns."""

PRUNE_PASSES = 16
"""Calls of `prune` in one step. The rest waits for the next step, so that others can write in between."""


class Housekeeping:
    """Expires and prunes turns, and reports the room that is left."""

    def __init__(
        self,
        store: AsyncStore,
        home: Path,
        *,
        next_state_s: float,
        max_age_s: float,
        max_bytes: int,
        report: Report,
        now: Callable[[], float],
        sweep: Callable[[Store, float], object] = lambda store, now: None,
    ) -> None:
        """How long a turn waits for its next state, and how long and how much the store keeps. `sweep` ends
        episodes that nothing else ends."""
        self._store, self._home, self._next_state_s = store, home, next_state_s
        self._max_age_s, self._max_bytes = max_age_s, max_bytes
        self._report, self._now, self._sweep = report, now, sweep

    async def run(self, signals: Signals, *, poll_s: float, back_off: BackOff) -> None:
        """Step until a stop signal. A step reports its own health; the loop reports only its exceptions."""
        health = StageHealth(STAGE, self._report_failure)
        await work(self.step, signals=signals, health=health, poll_s=poll_s, back_off=back_off)

    async def _report_failure(self, ok: bool, message: str) -> None:
        if not ok:
            await self._report(ok, message)

    async def step(self) -> bool:
        """Expire, prune, measure the disk. Always False: nothing is left to do at once."""
        now, pruned = self._now(), None
        await self._store.call(lambda store: self._sweep(store, now))
        oldest = now - self._next_state_s
        await self._store.call(lambda store: store.expire_open(older_than=oldest, now=now))
        for _ in range(PRUNE_PASSES):
            pruned = await self._store.call(
                lambda store: store.prune(now=now, max_age_s=self._max_age_s, max_bytes=self._max_bytes)
            )
            if not pruned.turns:
                break
        assert pruned is not None
        await self._report(*_health(pruned, shutil.disk_usage(self._home).free))
        return False


def _health(pruned: Pruned, free: int) -> tuple[bool, str]:
    room = f"the store holds {pruned.size / 2**20:.1f} MiB, the disk has {free / 2**30:.1f} GiB free"
    if free < LOW_DISK_BYTES:
        return False, f"{room}: too little for new versions; free some space or lower learner.keep_versions"
    if pruned.over_budget:
        return False, f"{room}: waiting turns alone exceed store.keep_gb; raise it, or see why they wait"
    return True, room
