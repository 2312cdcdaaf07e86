"""The loop that checks the judge now and then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Self

import orjson

from afterwit.engines.port import Engine, Score, Weights
from afterwit.errors import EngineError, JudgeRefused, JudgeUnavailable, TurnNotFound
from afterwit.judging.ability import fault_of
from afterwit.judging.checks import (
    PROBES,
    HintLift,
    HintPair,
    JudgeReport,
    Share,
    hint_lifts,
    hint_pairs,
    judge_report,
    probed,
    warnings,
)
from afterwit.judging.hinted_prompts import Placement, Rendering, hinted_prompts
from afterwit.judging.questions import JudgePrompts, JudgeView
from afterwit.judging.settings import JudgeSettings
from afterwit.judging.verdicts import JudgeClient
from afterwit.judging.voting import evaluation_vote
from afterwit.retry import BackOff
from afterwit.store import AsyncStore, Record, Store
from afterwit.turn import Turn
from afterwit.worker import Report, Signals, StageHealth, work

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


NEWEST = 2000
"""Judged turns that are looked at."""


def report_of(store: Store) -> JudgeReport:
    """Over the newest judged turns."""
    kept = Measured.of(store)
    return judge_report(
        store.judged_turns(limit=NEWEST),
        lifts=hint_lifts(kept.lifts) if kept is not None and kept.lifts else None,
        probed=probed(kept.probes) if kept is not None and kept.probes else None,
        unable=fault_of(store),
    )


def judge_shares(store: Store) -> Mapping[str, float]:
    """What the last check said in numbers between 0 and 1, by check; empty before the first."""
    kept = Measured.of(store)
    return {} if kept is None else kept.shares


def known_of_judge(report: JudgeReport) -> Iterator[tuple[str, str]]:
    """Each check's name, and what it found in words."""
    yield "can judge", "yes, or not known yet" if report.unable is None else report.unable
    yield "turns", f"{report.turns} judged, the newest"
    for name, found in (("rewards", report.rewards), ("hints", report.hints)):
        yield f"votes on {name}", _agreement(found.share, found.wrong, found.turns)
    yield "invalid votes", _share(report.invalid, "no votes yet")
    calibration = report.calibration
    said = _share(calibration.right, "no turn with explicit feedback has been judged yet")
    kind = calibration.too_kind
    yield (
        "says what feedback says",
        said + (f"; it praised {kind.count} of {kind.of} bad ones" if kind.of else ""),
    )
    yield "ends well after good steps", _share(report.outcomes.good, "no such step yet")
    yield "ends well after bad steps", _share(report.outcomes.bad, "no such step yet")
    if report.lifts is None:
        yield "hints help", "not measured yet: it needs complaints whose redone answer was accepted"
    else:
        mean = report.lifts.mean or 0.0
        yield "hints help", f"{_share(report.lifts.wins, '')}, by {mean:+.3f} nats a token on average"
    if report.probed is None:
        yield "swayed by flattery", "not probed yet: `afterwit serve` does so once"
    else:
        right = report.probed.right
        yield (
            "swayed by flattery",
            f"{_share(report.probed.swayed, 'unknown')}; it sees {right.count} of {right.of} plain failures",
        )


def _agreement(share: float | None, wrong: float | None, turns: int) -> str:
    if share is None or wrong is None:
        return "nothing to compare: it needs two votes on a turn"
    return f"{share:.0%} of pairs on a turn agree, as if {wrong:.0%} of answers were wrong ({turns} turns)"


def _share(found: Share, none: str) -> str:
    if found.share is None:
        return none
    low, high = found.interval.low, found.interval.high
    return f"{found.count} of {found.of} ({low:.0%} to {high:.0%})"


NOTE = "judge"


KEPT = 200
"""Hints that are remembered, the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Of one judge: another one begins anew."""

    judge: str
    """Who it is: its name and where it is, or the model."""
    probes: tuple[tuple[int | None, int | None], ...] = ()
    """The votes on each probe and its twin; (): it was not probed."""
    lifts: tuple[HintLift, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)
    """What the last report said, in numbers, by check."""

    @classmethod
    def of(cls, store: Store) -> Self | None:
        """What the store keeps; None: nothing yet."""
        text = store.note(NOTE)
        if text is None:
            return None
        data = orjson.loads(text)
        return cls(
            judge=data["judge"],
            probes=tuple((plain, flattered) for plain, flattered in data["probes"]),
            lifts=tuple(HintLift(**each) for each in data["lifts"]),
            shares=data["shares"],
        )

    def keep(self, store: Store) -> None:
        """Write it over what was kept before."""
        store.set_note(NOTE, orjson.dumps(asdict(self) | {"lifts": self.lifts[-KEPT:]}).decode())


def shares_of(report: JudgeReport) -> dict[str, float]:
    """What is known, in numbers between 0 and 1: for metrics."""
    found = {
        "rewards_agree": report.rewards.share,
        "hints_agree": report.hints.share,
        "invalid": report.invalid.share,
        "right": report.calibration.right.share,
        "hints_help": None if report.lifts is None else report.lifts.wins.share,
        "swayed": None if report.probed is None else report.probed.swayed.share,
    }
    return {name: value for name, value in found.items() if value is not None}


class HintScoring:
    """Scores pairs with the engine that serves, by weights that never learned if it has them."""

    def __init__(self, engine: Engine, rendering: Rendering, placement: Placement) -> None:
        self._engine, self._rendering, self._placement = engine, rendering, placement
        self._weights = Weights.BASE if engine.capabilities.base_weights else Weights.LIVE

    @property
    def possible(self) -> bool:
        """Whether the engine scores at all."""
        return self._engine.capabilities.scored_ids > 0

    async def lift(self, store: AsyncStore, pair: HintPair) -> HintLift | None:
        """None if a turn's text is gone, was not sampled here, or leaves no room. Raises EngineError."""
        rows = await store.call(lambda each: _records(each, pair))
        built = await asyncio.to_thread(self._rows, *rows)
        if built is None:
            return None
        scored = await self._engine.score(built, top=1, weights=self._weights)
        plain, hinted, other = (fmean(each.logprobs) for each in scored)
        return HintLift(turn=pair.turn, plain=plain, hinted=hinted, other=other)

    def _rows(self, complained: Record, accepted: Record, other: Record) -> list[Score] | None:
        turn, answer = complained.turn, accepted.turn
        hints = [found.verdict.hints[:1] for found in (complained, other) if found.verdict is not None]
        told = [hint for each in hints for hint in each]
        if not (isinstance(turn, Turn) and isinstance(answer, Turn) and answer.sampled.ids) or len(told) < 2:
            return None
        room = self._engine.facts.context_length - len(answer.sampled.ids)
        prompts, _ = hinted_prompts(turn, told, self._rendering, self._placement, room)
        if len(prompts) < 2 or len(turn.prompt_ids) > room:
            return None
        behind = [turn.prompt_ids, *(ids for _, ids in prompts)]
        return [Score(prompt_ids=ids, response_ids=answer.sampled.ids) for ids in behind]


def _records(store: Store, pair: HintPair) -> tuple[Record, Record, Record]:
    return store.turn(pair.turn), store.turn(pair.accepted), store.turn(pair.other)
