"""From judged samples to what one update scores: each is given its hinted prompts, or refused. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from afterwit.errors import RequestError
from afterwit.judging.hinted_prompts import Placement, Rendering, hinted_prompts, recites
from afterwit.learning.score import Row
from afterwit.lifecycle import Reason
from afterwit.objective.settings import ObjectiveSettings
from afterwit.teacher import TeacherRow
from afterwit.turn import SHARED, Basis, Turn, scoring_temperature
from afterwit.verdict import Carried, JudgedTurn, confidence, untrainable
from afterwit.version import versions_between

AS_SAMPLED = ("",)
"""No hint: the teacher reads the recorded prompt. It may have lessons that the student does not read; or the
response recites a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """The most tokens of prompt and response, and the most versions before `version`."""

    max_tokens: int
    max_staleness: int
    version: int
    chain: Sequence[int]
    """The numbers of the adapter's versions, ascending."""
    adapter: str = SHARED


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One response of an update."""

    turn: str | None
    """The turn of the store that it is; None: it is of no store."""
    behaviour: Behaviour
    student: Row
    teachers: tuple[Row, ...]
    """The same response after each hint whose teacher runs, shortest hint first; none: no OPD term."""
    hints: tuple[str, ...]
    """The hints of `teachers`."""
    teacher_rows: tuple[TeacherRow | None, ...] | None = None
    """The scores of each token by a teacher that ran elsewhere, None where it is not distilled."""
    reward: float | None
    """None: no RL term."""
    group: tuple[float, ...] = ()
    """The rewards of all judged samples of the turn's prompt, this one included; (): not asked for."""
    staleness: int
    """Versions between the update and the oldest token's."""

    def __post_init__(self) -> None:
        tokens = len(self.student.response)
        for name, values in (
            ("forced", self.behaviour.forced),
            ("logprobs", self.behaviour.logprobs),
            ("teacher rows", self.teacher_rows),
        ):
            if values is not None and len(values) != tokens:
                raise ValueError(f"{tokens} ids but {len(values)} {name}")


class Refused(NamedTuple):
    """A turn that cannot train, and why."""

    turn: str
    reason: Reason


def build_items(
    samples: Sequence[JudgedTurn],
    rendering: Rendering,
    placement: Placement,
    limits: TurnLimits,
    objective: ObjectiveSettings,
) -> tuple[list[Item], list[Refused]]:
    """Each sample as an item, or refused with its reason; in order."""
    items, refused = list[Item](), list[Refused]()
    for sample in samples:
        found = _item(sample, rendering, placement, limits, objective)
        if isinstance(found, Item):
            items.append(found)
        else:
            refused.append(Refused(sample.turn.id, found))
    return items, refused


def _item(
    sample: JudgedTurn,
    rendering: Rendering,
    placement: Placement,
    limits: TurnLimits,
    objective: ObjectiveSettings,
) -> Item | Reason:
    turn, tokens, staleness = sample.turn, sample.turn.sampled.ids, 1
    if turn.adapter == limits.adapter:
        staleness = versions_between(turn.sampled.oldest_version, limits.version, limits.chain)
    if (reason := _unfit(turn, staleness, limits)) is not None:
        return reason
    sure = confidence(turn.sampled.logprobs, turn.sampled.forced)

    shown, prompt = bool(turn.conversation.lessons), turn.prompt_ids
    if shown and recites(turn.message):
        return Reason.NO_SIGNAL
    if shown:
        try:
            prompt = rendering.prompt_ids(replace(turn.conversation, lessons=""))
        except RequestError:
            return Reason.RENDER_MISMATCH

    def learned(opd: bool) -> Carried:
        carried = Carried(rl=sample.rl and not shown, opd=opd)
        return objective.reads.learned(carried, reward=sample.verdict.reward, confidence=sure)

    asked = learned(sample.opd)
    if asked.reason is not None:
        return asked.reason
    own = () if recites(turn.message) else sample.verdict.hints
    hints = (own or AS_SAMPLED) if objective.needs_teacher and asked.opd else ()
    hinted, missing = hinted_prompts(turn, hints, rendering, placement, limits.max_tokens - len(tokens))
    taken = learned(bool(hinted))
    if missing is not None and taken.reason is not None:
        return missing
    run = objective.hint_rule.teachers([len(hint) for hint, _ in hinted], tokens)
    return Item(
        turn=turn.id,
        behaviour=Behaviour.of_turn(turn),
        student=Row(prompt=prompt, response=tokens),
        teachers=tuple(Row(prompt=hinted[index][1], response=tokens) for index in run),
        hints=tuple(hinted[index][0] for index in run),
        reward=float(sample.verdict.reward) if objective.has_rl and taken.rl else None,
        group=tuple(map(float, sample.group_rewards)),
        staleness=staleness,
    )


def _unfit(turn: Turn, staleness: int, limits: TurnLimits) -> Reason | None:
    """Why a turn cannot train at all; None if it can.

    A turn that another adapter sampled has no version of this one, and is never too old.
    """
    if (reason := untrainable(turn)) is not None:
        return reason
    if staleness > limits.max_staleness and turn.adapter == limits.adapter:
        return Reason.STALE
    if len(turn.prompt_ids) + len(turn.sampled.ids) > limits.max_tokens:
        return Reason.TOO_LONG
    return None if all(map(math.isfinite, turn.sampled.logprobs)) else Reason.NOT_FINITE


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Tuples are as long as the response."""

    forced: tuple[bool, ...]
    """Tokens that are in no loss: they were not sampled from the policy."""
    logprobs: tuple[float, ...] | None
    """log pi_b; None: they are not known, so nothing is corrected by them."""
    basis: Basis = Basis.PROCESSED
    temperature: float = 1.0
    truncated: bool = False
    """Part of the vocabulary could not be sampled."""
    older_cache: bool = False
    """Some tokens attended to keys and values of an older version than the one that sampled them."""

    @classmethod
    def of_turn(cls, turn: Turn) -> Self:
        """As the engine reported it; log-probs with lessons in the prompt are not those of the student's."""
        sampled = turn.sampled
        return cls(
            forced=sampled.forced,
            logprobs=None if turn.conversation.lessons else sampled.logprobs,
            basis=sampled.basis,
            temperature=turn.sampling.temperature,
            truncated=turn.sampling.truncated,
            older_cache=sampled.cache_version not in (None, sampled.oldest_version),
        )

    @property
    def tau(self) -> float:
        """The temperature of the response's log-probs."""
        return scoring_temperature(self.temperature)
