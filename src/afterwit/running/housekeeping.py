"""Housekeeping: ends turns that nothing answered, keeps the store within its limits, watches the disk."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from afterwit.config import Settings
from afterwit.promotion.watch import WatchOver
from afterwit.store import AsyncStore
from afterwit.text import size_in_words
from afterwit.worker import BackOff, Report, Signals, StageHealth, work

log = logging.getLogger(__name__)
STAGE = "housekeeping"
EVERY_S = 60.0
LOW_DISK_BYTES = 2**30
"""Below this much free space a new version may not fit, so the status warns."""
PRUNE_PASSES = 16
"""Calls of `prune` in one step. The rest waits for the next step, so that others can write in between."""


async def keep_house(
    settings: Settings,
    home: Path,
    store: AsyncStore,
    signals: Signals,
    report: Report,
    *,
    now: Callable[[], float] = time.time,
) -> None:
    """Step until a stop signal. A step reports its own health; the loop reports only its exceptions."""
    limits, watch, logged = settings.store, WatchOver(settings.promotion), ""
    max_age_s, max_bytes = limits.keep_days * 86400, int(limits.keep_gb * 1e9)

    async def step() -> bool:
        """Expire, prune, measure the disk. Always False: nothing is left to do at once."""
        nonlocal logged
        at = now()
        oldest = at - limits.next_state_hours * 3600
        await store.call(lambda store: watch.sweep(store, now=at))
        await store.call(lambda store: store.expire_open(older_than=oldest, now=at))
        for _ in range(PRUNE_PASSES):
            if not await store.call(
                lambda store: store.prune(now=at, max_age_s=max_age_s, max_bytes=max_bytes)
            ):
                break
        size = await store.call(lambda store: store.size())
        words, fault = room(size, shutil.disk_usage(home).free, max_bytes)
        if fault not in ("", logged):
            log.warning("%s: %s%s", STAGE, words, fault)
        logged = fault
        await report(not fault, words + fault)
        return False

    async def failed(ok: bool, message: str) -> None:
        if not ok:
            await report(ok, message)

    back_off = BackOff(base_s=EVERY_S, max_s=3600.0)
    await work(step, signals=signals, health=StageHealth(STAGE, failed), poll_s=EVERY_S, back_off=back_off)


def room(size: int, free: int, max_bytes: int) -> tuple[str, str]:
    """The bytes of the store and those that are free on the disk, in words; and what is wrong, or ""."""
    words, fault = f"the store holds {size_in_words(size)}, the disk has {size_in_words(free)} free", ""
    if free < LOW_DISK_BYTES:
        fault = ": too little for new versions; free some space or lower learner.keep_versions"
    elif size > max_bytes:
        fault = ": waiting turns alone exceed store.keep_gb; raise it, or see why they wait"
    return words, fault
