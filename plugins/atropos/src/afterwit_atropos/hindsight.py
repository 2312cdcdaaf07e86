"""A rollout in, teacher rows for each position out."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from afterwit.api.judging import (
    HINT_RULES,
    HintRule,
    Placement,
    Reads,
    Rendering,
    Verdicts,
    hinted_prompts,
    unplanted,
    untrainable,
)
from afterwit.api.running import BackOff, described, frames, retrying, verdicts_of
from afterwit.api.serving import Engine, Renderer, Score, Scored, Weights
from afterwit.api.settings import Settings, at_least, one_of_its_choices, within
from afterwit.api.turns import (
    AfterwitError,
    EngineError,
    EngineUnavailable,
    NextState,
    Reason,
    ReasonClass,
    SettingError,
    TeacherRow,
    Turn,
    Verdict,
    is_logprob,
    scoring_temperature,
)
from afterwit_atropos.rollout import Rollout, ScoredRollout, ScoredTurn, TurnInHindsight, Unscored, pairs

log = logging.getLogger(__name__)

REMEMBERED_TURNS = 400
"""The last turns of a run, of which not too many may lack rows."""

REMEDIES = {
    Reason.JUDGE_FAILED: "see whether the judge answers (judge.url, judge.timeout_s), and its context",
    Reason.INVALID_VOTES: "raise judge.max_tokens if the judge thinks, or take a more capable one",
    Reason.RENDER_MISMATCH: "prompts must be rendered by the model's own template, from the messages, "
    "tools and arguments that their turns hold, and judge.placement must be one that it takes",
    Reason.TOO_LONG: "raise engine.context_length, or shorten the rollouts",
    Reason.TEACHER_FAILED: "the log has the engine's error",
    Reason.NOT_FINITE: "the teacher rules out what the policy sampled: are both the same model?",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HindsightSettings:
    """The teacher's weights, choice of hint and size of rows. `JudgeSettings` is for judging."""

    top_k: int = 50
    """Ids in a teacher's row, the sampled one included; 50 as published. If the engine returns fewer, rows
    are narrower, which is logged once."""
    weights: Weights = Weights.LIVE
    """The teacher's weights: the policy's own, as published, or the frozen first ones."""
    hint_selection: Literal["longest", "shortest", "sequence_optimal", "token_optimal"] = "longest"
    """The hint that teaches if there are several; `longest` as published. `sequence_optimal` and
    `token_optimal` ask the teacher about each, and the policy too."""
    overlap_k: int = 4
    """Ids of policy and teacher that `sequence_optimal` and `token_optimal` compare."""
    doubtful_hints: bool = False
    """Whether hints teach, as published, that name an address or command which no person named, or that order
    something beyond the turn. Tools can plant such a hint, and rollouts are not reviewed."""
    attempts: int = 3
    """Tries of a teacher that does not answer before its turns count as not scored."""
    max_unscored_share: float = 0.5
    """Share of turns that may fail to be scored before the run stops with the reason. A turn without a next
    state or hint did not fail."""
    unscored_after: int = 24
    """Turns before this share is checked."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        at_least(self, 1, "top_k", "overlap_k", "attempts", "unscored_after")
        within(self, 0, 1, "max_unscored_share")

    @property
    def hint_rule(self) -> HintRule:
        return HINT_RULES[self.hint_selection]

    @property
    def reads(self) -> Reads:
        """Only hints are read from a verdict. The reward of a rollout is its task's."""
        return Reads(rl=False, keeps_longest=self.hint_rule.keeps_longest)


class TooManyUnscored(AfterwitError):
    """Most turns of a run of rollouts could not be scored. The message has the most frequent reason."""


class Hindsight:
    """Scores rollouts concurrently over one judge and one engine, which bound their calls."""

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
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`temperature` is the policy's. SettingError if the engine cannot teach it."""
        self._engine, self._rendering, self._verdicts, self._settings = engine, rendering, verdicts, settings
        self._placement, self._back_off, self._sleep = placement, back_off, sleep
        self.top_k = _width(engine, settings)
        """Most ids of a row: the smaller of the settings' number and the engine's."""
        _check_temperature(engine, temperature)
        self._tau = scoring_temperature(temperature)
        self._failed = deque[Reason | None](maxlen=max(REMEMBERED_TURNS, settings.unscored_after))

    async def score(self, rollout: Rollout) -> ScoredRollout:
        """The rollout with rows for the turns that taught something, and the reason for each other turn.

        Raises TooManyUnscored if that is too seldom, and ValueError for a turn of another temperature.
        """
        opened = await asyncio.gather(*(self._opened(turn, following) for turn, following in pairs(rollout)))
        hinted = [each for each in opened if isinstance(each, HintedTurn)]
        taught = {each.turn.id: each for each in await self._taught(hinted)}
        turns = tuple(taught[each.turn.id] if isinstance(each, HintedTurn) else each for each in opened)
        self._count(turns)
        return ScoredRollout(rollout=rollout, turns=turns, teacher=self._settings.weights)

    async def _opened(self, turn: Turn, next_state: NextState | None) -> HintedTurn | Unscored:
        """The rows that the teacher must score for a turn, or the reason for none."""
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
            verdict = replace(verdict, hints=unplanted(verdict.hints, turn, next_state))
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

    async def _taught(self, turns: Sequence[HintedTurn]) -> list[TurnInHindsight]:
        """All turns in one call, so that they share their beginnings.

        If that fails, each turn in a call of its own, so that a refused row does not fail the others.
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
        top = max(self.top_k, min(self._settings.overlap_k, self._engine.capabilities.scored_ids))
        return await retrying(
            lambda: self._engine.score(rows, top=top, weights=self._settings.weights),
            attempts=self._settings.attempts,
            back_off=self._back_off,
            sleep=self._sleep,
            on=EngineUnavailable,
        )

    def _scored(self, turns: Sequence[HintedTurn], scored: Sequence[Scored]) -> list[TurnInHindsight]:
        answers = iter(scored)
        return [self._scored_turn(each, list(islice(answers, len(each.rows)))) for each in turns]

    def _scored_turn(self, hinted: HintedTurn, scored: Sequence[Scored]) -> TurnInHindsight:
        """The turn with a row for each of its tokens, by the answer to each of its `rows`."""
        ids, teachers = hinted.turn.sampled.ids, scored[: len(hinted.hints)]
        student, *taught = (
            [each[: self._settings.overlap_k] for each in answer.top_ids]
            for answer in (scored[-1], *teachers)
        )
        chosen = self._settings.hint_rule.choose_by_ids(
            student, taught, [not forced for forced in hinted.turn.sampled.forced]
        )
        rows = [
            row_of(
                token,
                teacher.logprobs[at],
                zip(teacher.top_ids[at], teacher.top_logprobs[at], strict=True),
                self.top_k,
            )
            for at, (token, teacher) in enumerate(zip(ids, (teachers[hint] for hint in chosen), strict=True))
        ]
        found = tuple(row for row in rows if row is not None)
        if len(found) < len(ids):
            return Unscored(turn=hinted.turn, reason=Reason.NOT_FINITE, verdict=hinted.verdict)
        return ScoredTurn(
            turn=hinted.turn,
            verdict=hinted.verdict,
            hints=hinted.hints,
            chosen=chosen,
            rows=found,
            teacher_version=scored[0].version,
        )

    def _count(self, turns: Iterable[TurnInHindsight]) -> None:
        """Raises TooManyUnscored if too many of the last turns lack rows that they should have had.

        One that taught nothing should have none.
        """
        for turn in turns:
            reason = turn.reason if isinstance(turn, Unscored) else None
            taught_nothing = reason is not None and reason.kind is ReasonClass.NOTHING_TO_LEARN
            self._failed.append(None if taught_nothing else reason)
        failures = Counter(reason for reason in self._failed if reason is not None)
        seen, failed = len(self._failed), failures.total()
        if seen < self._settings.unscored_after or failed <= self._settings.max_unscored_share * seen:
            return
        reason, times = failures.most_common(1)[0]
        raise TooManyUnscored(
            f"{failed} of the last {seen} turns could not be scored, {times} of them because of {reason}: "
            + REMEDIES.get(reason, "look at the reasons of their turns")
        )


def _width(engine: Engine, settings: HindsightSettings) -> int:
    """Ids in a row. Logs once if the engine returns fewer than the settings ask for."""
    can = engine.capabilities
    if not can.scored_ids:
        raise SettingError(
            f"the engine {engine.facts.name} scores no given ids, so it cannot teach: "
            + can.remedies.get("scored_ids", 'set engine.kind to "embedded", "vllm" or "sglang"')
        )
    if can.scored_ids < settings.top_k:
        log.warning(
            "hindsight: rows of the teacher have %d ids, not %d: the engine returns no more",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class HintedTurn:
    """A turn with the hints that may teach it."""

    turn: Turn
    verdict: Verdict
    hints: tuple[str, ...]
    rows: tuple[Score, ...]
    """The response after each hint's prompt; then after its own, if the hints are compared with that."""


def hinted_turn_of(
    turn: Turn, verdict: Verdict, hinted: Sequence[tuple[str, tuple[int, ...]]], rule: HintRule
) -> HintedTurn:
    """Of hints with their prompts, shortest first, those whose teachers the rule asks."""
    ids, tau = turn.sampled.ids, scoring_temperature(turn.sampling.temperature)
    chosen = [hinted[at] for at in rule.teachers([len(hint) for hint, _ in hinted], ids)]
    prompts = [prompt for _, prompt in chosen]
    if len(chosen) > 1:
        prompts.append(turn.prompt_ids)
    return HintedTurn(
        turn=turn,
        verdict=verdict,
        hints=tuple(hint for hint, _ in chosen),
        rows=tuple(Score(prompt_ids=prompt, response_ids=ids, tau=tau) for prompt in prompts),
    )


def row_of(token: int, logprob: float, top: Iterable[tuple[int, float]], k: int) -> TeacherRow | None:
    """The sampled id, then the likeliest others, k in all; None if the teacher rules the sampled id out."""
    if not is_logprob(logprob):
        return None
    others = [(each, value) for each, value in top if each != token and is_logprob(value)][: k - 1]
    return TeacherRow(
        ids=(token, *(each for each, _ in others)), logprobs=(logprob, *(value for _, value in others))
    )


def hindsight_of(
    settings: Settings,
    hindsight: HindsightSettings,
    engine: Engine,
    renderer: Renderer,
    *,
    temperature: float,
) -> Hindsight:
    """Hindsight over whole rollouts, with the judge that the settings name; `temperature` is the policy's.

    SettingError if this engine cannot judge or teach.
    """
    judge = settings.judge
    back_off = BackOff(base_s=judge.retry_base_s, max_s=judge.retry_max_s)
    verdicts = verdicts_of(judge, hindsight.reads, engine, renderer)
    return Hindsight(
        engine,
        renderer,
        verdicts,
        hindsight,
        placement=judge.placement,
        temperature=temperature,
        back_off=back_off,
    )
