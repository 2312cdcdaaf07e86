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
NOTE = "judge"
"""The store's note that holds the shares of the last check."""


class JudgeChecks:
    """Reports faults of the judge as the health of a stage."""

    def __init__(self, store: AsyncStore, *, every_s: float, report: Report) -> None:
        self._store, self._every_s, self._report = store, every_s, report

    async def run(self, signals: Signals) -> None:
        """Wait, then step, until `signals.stop` is set."""

        async def failed(ok: bool, message: str) -> None:
            if not ok:
                await self._report(ok, message)

        await signals.rest(self._every_s)
        if not signals.stop.is_set():
            back_off = BackOff(base_s=self._every_s, max_s=10 * self._every_s, random=random.random)
            health = StageHealth(JUDGE_CHECKS, failed)
            await work(self.step, signals=signals, health=health, poll_s=self._every_s, back_off=back_off)

    async def step(self) -> bool:
        """Check once and report. Returns False: the next check can wait."""
        report = await self._store.call(report_of)
        await self._store.call(lambda store: keep_shares(store, report.shares))
        wrong = list(warnings(report))
        await self._report(not wrong, "; ".join(wrong) or f"{report.turns} judged turns show nothing wrong")
        return False


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
