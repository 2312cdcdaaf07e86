"""A rollout in, teacher rows for each position out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from afterwit.core.errors import EngineError, EngineUnavailable, SettingError
from afterwit.core.judging import Placement, Rendering, hinted_prompts
from afterwit.core.lifecycle import Reason
from afterwit.core.rollout import Rollout, ScoredRollout, ScoredTurn, Unscored, pairs
from afterwit.core.terms import untrainable
from afterwit.core.turn import Turn, scoring_temperature
from afterwit.core.verdict import NextState
from afterwit.engines.port import Engine, Scored
from afterwit.stages.hindsight.doubts import sound_hints
from afterwit.stages.hindsight.hinted_turn import HintedTurn, hinted_turn_of, scored_turn
from afterwit.stages.hindsight.settings import HindsightSettings
from afterwit.stages.hindsight.tally import Tally
from afterwit.stages.judge.verdicts import Verdicts
from afterwit.stages.retry import BackOff, retrying
from afterwit.stages.worker import described, frames

log = logging.getLogger(__name__)


class Hindsight:
    """Scores rollouts; several at one time, over one judge and one engine, which bound their calls."""

    def __init__(
        self,
        engine: Engine,
        rendering: Rendering,
        verdicts: Verdicts,
        settings: HindsightSettings,
        *,
        placement: Placement,
        temperature: float,
        back_off: BackOff,
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        """`temperature` is the policy's. SettingError if the engine cannot teach it."""
        self._engine, self._rendering, self._verdicts, self._settings = engine, rendering, verdicts, settings
        self._placement, self._back_off, self._sleep = placement, back_off, sleep
        self._top_k = _width(engine, settings)
        _check_temperature(engine, temperature)
        self._tau = scoring_temperature(temperature)
        self.tally = Tally(most=settings.max_unscored_share, fewest=settings.unscored_after)

    @property
    def top_k(self) -> int:
        """Most ids of a row: what the settings ask for, or what the engine tells."""
        return self._top_k

    async def score(self, rollout: Rollout) -> ScoredRollout:
        """The rollout with rows for the turns that taught something, and the reason for each other turn.

        Raises TooManyUnscored if that is too seldom, and ValueError for a turn of another temperature.
        """
        opened = await asyncio.gather(*(self._opened(turn, following) for turn, following in pairs(rollout)))
        hinted = [each for each in opened if isinstance(each, HintedTurn)]
        taught = {each.turn.id: each for each in await self._taught(hinted)}
        turns = tuple(taught[each.turn.id] if isinstance(each, HintedTurn) else each for each in opened)
        self.tally.add(turns)
        return ScoredRollout(rollout=rollout, turns=turns, teacher=self._settings.weights)

    async def _opened(self, turn: Turn, next_state: NextState | None) -> HintedTurn | Unscored:
        """What the turn asks of the teacher, or why it asks nothing."""
        if scoring_temperature(turn.sampling.temperature) != self._tau:
            raise ValueError(
                f"turn {turn.id} was sampled at {turn.sampling.temperature:g}, not as this run's policy"
            )
        if (reason := untrainable(turn)) is not None:
            return Unscored(turn=turn, reason=reason)
        if next_state is None:
            return Unscored(turn=turn, reason=Reason.NO_NEXT_STATE)
        try:
            verdict = await self._verdicts.of(turn, next_state)
        except Exception as error:  # whatever fails is this turn's own: the rollout's other turns are scored
            log.warning("hindsight: turn %s is not judged: %s%s", turn.id, described(error), frames(error))
            return Unscored(turn=turn, reason=Reason.JUDGE_FAILED)
        found = self._settings.reads.of(turn, verdict)
        if found.reason is not None:
            return Unscored(turn=turn, reason=found.reason, verdict=verdict)
        if not self._settings.doubtful_hints:
            verdict = replace(verdict, hints=sound_hints(turn, next_state, verdict.hints))
            if not verdict.hints:
                log.warning("hindsight: turn %s has no hint but doubtful ones", turn.id)
                return Unscored(turn=turn, reason=Reason.DOUBTFUL_HINT, verdict=verdict)
        room = self._engine.facts.context_length - len(turn.sampled.ids)
        hinted, missing = await asyncio.to_thread(
            hinted_prompts, turn, verdict.hints, self._rendering, self._placement, room
        )
        if missing is not None:
            return Unscored(turn=turn, reason=missing, verdict=verdict)
        return hinted_turn_of(turn, verdict, hinted, self._settings.hint_rule)

    async def _taught(self, turns: Sequence[HintedTurn]) -> list[ScoredTurn | Unscored]:
        """All turns in one call, so that they share their beginnings.

        If it fails, each in a call of its own: one that the engine refuses takes no other with it.
        """
        if not turns:
            return []
        try:
            scored = await self._asked(turns)
        except EngineError as error:
            if len(turns) > 1 and not isinstance(error, EngineUnavailable):
                return [turn for each in turns for turn in await self._taught([each])]
            for each in turns:
                log.warning("hindsight: the teacher does not score turn %s: %s", each.turn.id, error)
            return [
                Unscored(turn=each.turn, reason=Reason.TEACHER_FAILED, verdict=each.verdict) for each in turns
            ]
        return await asyncio.to_thread(self._scored, turns, scored)

    async def _asked(self, turns: Sequence[HintedTurn]) -> list[Scored]:
        rows = [row for each in turns for row in each.rows]
        top = max(self._top_k, min(self._settings.overlap_k, self._engine.capabilities.scored_ids))
        return await retrying(
            lambda: self._engine.score(rows, top=top, weights=self._settings.weights),
            attempts=self._settings.attempts,
            back_off=self._back_off,
            sleep=self._sleep,
            on=EngineUnavailable,
        )

    def _scored(self, turns: Sequence[HintedTurn], scored: Sequence[Scored]) -> list[ScoredTurn | Unscored]:
        found, begin = list[ScoredTurn | Unscored](), 0
        for each in turns:
            part = scored[begin : begin + len(each.rows)]
            begin += len(each.rows)
            found.append(
                scored_turn(
                    each,
                    part,
                    self._settings.hint_rule,
                    top_k=self._top_k,
                    overlap_k=self._settings.overlap_k,
                )
            )
        return found


def _width(engine: Engine, settings: HindsightSettings) -> int:
    """Ids in a row. What the engine does not tell is said here, once."""
    can = engine.capabilities
    if not can.scored_ids:
        raise SettingError(
            f"the engine {engine.facts.name} scores no given ids, so it cannot teach: "
            + can.remedies.get("scored_ids", 'set engine.kind to "embedded", "vllm" or "sglang"')
        )
    if can.scored_ids < settings.top_k:
        log.warning(
            "hindsight: rows of the teacher have %d ids, not %d: the engine tells no more",
            can.scored_ids,
            settings.top_k,
        )
    if settings.weights == "base" and not can.base_weights:
        raise SettingError(
            "this engine serves no base weights to teach: "
            + can.remedies.get("base_weights", "let the live ones teach")
        )
    return min(settings.top_k, can.scored_ids)


def _check_temperature(engine: Engine, temperature: float) -> None:
    if scoring_temperature(temperature) != 1.0 and not engine.capabilities.scored_tau:
        raise SettingError(
            f"the policy samples at temperature {temperature:g}, but this engine scores at 1 alone, "
            "and log-probs at two temperatures cannot be compared: sample at 1, or take the embedded engine"
        )
