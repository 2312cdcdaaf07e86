"""The loop that checks the judge now and then."""

from __future__ import annotations

import random
from collections.abc import Mapping

import orjson

from afterwit.judging.ability import kept_words
from afterwit.judging.checks import JudgeReport, judge_report, warnings
from afterwit.store import AsyncStore, Store
from afterwit.worker import BackOff, Report, Signals, StageHealth, work

JUDGE_CHECKS = "judge_checks"
NEWEST = 2000
"""Judged turns that a check reads."""
NOTE = "judge"
"""The store's note that holds the shares of the last check."""


async def keep_checking(store: AsyncStore, signals: Signals, report: Report, *, every_s: float) -> None:
    """Wait, then check and report the judge's faults, until a stop signal."""

    async def step() -> bool:
        """Always False: the next check can wait."""
        found = await store.call(report_of)
        await store.call(lambda store: keep_shares(store, found.shares))
        wrong = list(warnings(found))
        await report(not wrong, "; ".join(wrong) or f"{found.turns} judged turns show nothing wrong")
        return False

    async def failed(ok: bool, message: str) -> None:
        if not ok:
            await report(ok, message)

    await signals.rest(every_s)
    if not signals.stop.is_set():
        back_off = BackOff(base_s=every_s, max_s=10 * every_s, random=random.random)
        health = StageHealth(JUDGE_CHECKS, failed)
        await work(step, signals=signals, health=health, poll_s=every_s, back_off=back_off)


def report_of(store: Store) -> JudgeReport:
    """Over the newest judged turns."""
    unable, how = kept_words(store)
    return judge_report(store.judged_turns(limit=NEWEST), unable=unable, how=how)


def keep_shares(store: Store, shares: Mapping[str, float]) -> None:
    """Store the shares of a check over those of the one before."""
    store.set_note(NOTE, orjson.dumps(shares).decode())


def judge_shares(store: Store) -> Mapping[str, float]:
    """The shares that the last check found, by check; empty before the first."""
    note = store.note(NOTE)
    return {} if note is None else orjson.loads(note)
