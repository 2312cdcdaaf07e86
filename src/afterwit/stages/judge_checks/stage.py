"""The loop that checks the judge now and then."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from afterwit.core.errors import EngineError, JudgeRefused, JudgeUnavailable, TurnNotFound
from afterwit.core.judge_checks import PROBES, HintLift, hint_pairs, warnings
from afterwit.core.judging import JudgePrompts, JudgeView, evaluation_vote
from afterwit.stages.judge.ability import fault_of
from afterwit.stages.judge.client import JudgeClient
from afterwit.stages.judge.settings import JudgeSettings
from afterwit.stages.judge_checks.measured import KEPT, Measured, shares_of
from afterwit.stages.judge_checks.report import NEWEST, report_of
from afterwit.stages.judge_checks.scoring import HintScoring
from afterwit.stages.retry import BackOff
from afterwit.stages.worker import Report, Signals, StageHealth, work
from afterwit.store import AsyncStore

STAGE = "judge_checks"
AT_ONCE = 8
"""Hints that one step scores, three forward passes each."""


class JudgeChecks:
    """Probes the judge once, scores a few hints at a time, and reports what is surely wrong."""

    def __init__(
        self,
        store: AsyncStore,
        client: JudgeClient,
        prompts: JudgePrompts,
        settings: JudgeSettings,
        *,
        judge: str,
        scoring: HintScoring | None,
        report: Report,
    ) -> None:
        """`judge` names it: what was measured of another one does not count."""
        self._store, self._client, self._prompts, self._settings = store, client, prompts, settings
        self._judge, self._report = judge, report
        self._scoring = scoring if scoring is not None and scoring.possible else None

    async def run(self, signals: Signals) -> None:
        """Wait, then step, until told to stop."""
        every_s = self._settings.check_every_s
        await signals.rest(every_s)
        if not signals.stop.is_set():
            back_off = BackOff(base_s=every_s, max_s=10 * every_s, random=random.random)
            health = StageHealth(STAGE, self._failed)
            await work(self.step, signals=signals, health=health, poll_s=every_s, back_off=back_off)

    async def _failed(self, ok: bool, message: str) -> None:
        if not ok:
            await self._report(ok, message)

    async def step(self) -> bool:
        """Measure a little more, and report. Always False: the rest has time."""
        kept = await self._store.call(Measured.of)
        if kept is None or kept.judge != self._judge:
            kept = Measured(judge=self._judge)
        unable = await self._store.call(fault_of)
        probes = kept.probes or (await self._probe() if unable is None else ())
        lifts = (*kept.lifts, *await self._lifts({each.turn for each in kept.lifts}))[-KEPT:]
        kept = replace(kept, probes=probes, lifts=lifts)
        await self._store.call(kept.keep)
        report = await self._store.call(report_of)
        await self._store.call(replace(kept, shares=shares_of(report)).keep)
        wrong = list(warnings(report))
        await self._report(not wrong, "; ".join(wrong) or f"{report.turns} judged turns show nothing wrong")
        return False

    async def _probe(self) -> tuple[tuple[int | None, int | None], ...]:
        """The votes on every probe; none if the judge does not answer now."""
        try:
            return tuple(
                [(await self._vote(each.plain), await self._vote(each.flattered)) for each in PROBES]
            )
        except (JudgeUnavailable, JudgeRefused):
            return ()

    async def _vote(self, view: JudgeView) -> int | None:
        answer = await self._client.ask(
            self._prompts.evaluation(view),
            temperature=self._settings.temperature,
            max_tokens=self._prompts.max_tokens,
            seed=0,
        )
        return evaluation_vote(answer).value

    async def _lifts(self, checked: set[str]) -> Sequence[HintLift]:
        """Of a few hints that were not scored yet; what cannot be scored now is left out."""
        if self._scoring is None:
            return ()
        judged = await self._store.call(lambda store: store.judged_turns(limit=NEWEST))
        found = []
        for pair in list(hint_pairs(judged, checked))[-AT_ONCE:]:
            try:
                lift = await self._scoring.lift(self._store, pair)
            except (EngineError, TurnNotFound):
                continue
            if lift is not None:
                found.append(lift)
        return found
