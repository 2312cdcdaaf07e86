"""From a batch's JSON to the items of an update. What does not fit is left out, group by group. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from afterwit.core.rollout import TeacherRow
from afterwit.learner.batch import Item
from afterwit.learner.behaviour import Behaviour
from afterwit.learner.scoring import Row
from afterwit.objective.settings import ObjectiveSettings
from afterwit.stages.atropos.wire_objective import wire_objective
from afterwit.wire.atropos import BadGroup, ScoredGroup, ScoredSequence, read

NOTHING_IN_LOSS = "nothing_in_loss"
NO_PROMPT = "no_prompt"
"""The first token is in the loss, and nothing precedes it to predict it from."""
TOO_LONG = "too_long"
STALE = "stale"
NO_SIGNAL = "no_signal"
"""No teacher's row, and a score that says nothing: it is alone, or all of its group are equal."""
TOKEN_ADVANTAGES = "token_advantages"
"""The group's own advantages differ from token to token, which no objective here reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a sequence must keep to."""

    vocabulary: int
    max_tokens: int
    max_staleness: int
    version: int
    """The weights that the update starts from."""
    temperature: float
    """Of log-probs in groups that do not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What a batch gives."""

    items: list[Item]
    objective: ObjectiveSettings
    groups: int
    """Groups of the batch, refused ones included."""
    refused: list[str] = field(default_factory=list)
    """A sentence for each group that could not be read. They quote no conversation."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Sequences of good groups that cannot train, by reason."""


def intake(groups: Sequence[Any], limits: Limits, settings: ObjectiveSettings) -> Intake:
    """The items of a batch, and the objective that its teachers' rows allow."""
    good, refused = list[ScoredGroup](), list[str]()
    for at, data in enumerate(groups):
        try:
            good.append(read(data, vocabulary=limits.vocabulary))
        except BadGroup as error:
            refused.append(f"group {at + 1} of {len(groups)} ({error.refusal.value}): {error}")
    objective = wire_objective(settings, top_k=_top_k(good))
    items, left_out = list[Item](), Counter[str]()
    for group in good:
        for sequence, reward in zip(group.sequences, _rewards(group), strict=True):
            found = _item(sequence, group, reward, limits, objective)
            if isinstance(found, Item):
                items.append(found)
            else:
                left_out[found] += 1
    return Intake(items=items, objective=objective, groups=len(groups), refused=refused, left_out=left_out)


def _top_k(groups: Sequence[ScoredGroup]) -> bool:
    """Whether every group with rows has rows of several ids."""
    distil = [group for group in groups if group.distils]
    return bool(distil) and all(_widest(group) > 1 for group in distil)


def _widest(group: ScoredGroup) -> int:
    """The most ids of a row."""
    rows = (row for sequence in group.sequences for row in sequence.rows or ())
    return max((len(row.ids) for row in rows if row is not None), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reward:
    """A sequence's score, or its advantage if the group brought one, which then has no company."""

    value: float
    group: tuple[float, ...]


def _rewards(group: ScoredGroup) -> list[_Reward | str | None]:
    """For each sequence what its RL term reads; None: the scores say nothing; or why it cannot be read."""
    if group.sequences[0].advantages is not None:
        return [_own_advantage(sequence) for sequence in group.sequences]
    scores = tuple(sequence.score for sequence in group.sequences)
    if len(set(scores)) < 2:
        return [None] * len(scores)
    return [_Reward(value=score, group=scores) for score in scores]


def _own_advantage(sequence: ScoredSequence) -> _Reward | str | None:
    found = {value for value, inside in zip(sequence.advantages or (), sequence.mask, strict=True) if inside}
    if len(found) > 1:
        return TOKEN_ADVANTAGES
    value = found.pop() if found else 0.0
    return _Reward(value=value, group=()) if value else None


def _item(
    sequence: ScoredSequence,
    group: ScoredGroup,
    reward: _Reward | str | None,
    limits: Limits,
    objective: ObjectiveSettings,
) -> Item | str:
    """The sequence as an item, or why it is left out."""
    if not any(sequence.mask):
        return NOTHING_IN_LOSS
    if sequence.mask[0]:
        return NO_PROMPT
    begin = sequence.mask.index(True)
    end = len(sequence.mask) - sequence.mask[::-1].index(True)
    staleness = _staleness(sequence, limits.version)
    if end > limits.max_tokens:
        return TOO_LONG
    if staleness > limits.max_staleness:
        return STALE
    if isinstance(reward, str):
        return reward
    given = _rows(sequence, begin, end) if objective.has_opd else None
    rewarded = reward if objective.has_rl else None
    if given is None and rewarded is None:
        return NO_SIGNAL
    return Item(
        turn=None,
        behaviour=Behaviour(
            forced=tuple(not inside for inside in sequence.mask[begin:end]),
            logprobs=_behaviour(sequence, begin, end),
            temperature=limits.temperature if group.notes is None else group.notes.tau,
        ),
        student=Row(prompt=sequence.tokens[:begin], response=sequence.tokens[begin:end]),
        teachers=(),
        hints=(),
        given=given,
        reward=None if rewarded is None else rewarded.value,
        group=() if rewarded is None else rewarded.group,
        staleness=staleness,
    )


def _rows(sequence: ScoredSequence, begin: int, end: int) -> tuple[TeacherRow | None, ...] | None:
    """The rows of the response: each is *for* its token, so nothing is shifted. None if there is none."""
    rows = (sequence.rows or ())[begin:end]
    return rows if any(row is not None for row in rows) else None


def _behaviour(sequence: ScoredSequence, begin: int, end: int) -> tuple[float, ...] | None:
    """What the policy reported; 0 at tokens outside the loss, which nothing reads."""
    if sequence.logprobs is None:
        return None
    return tuple(0.0 if value is None else value for value in sequence.logprobs[begin:end])


def _staleness(sequence: ScoredSequence, version: int) -> int:
    """Versions since the oldest token, as far as its environment says; 0 if it does not."""
    turns = () if sequence.notes is None else sequence.notes.turns
    return max(0, version - min((turn.version for turn in turns), default=version))
