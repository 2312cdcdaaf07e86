"""A rollout in hindsight: each turn with the rows of the teacher that was shown a hint, or why not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from afterwit.core.lifecycle import Reason
from afterwit.core.rollout.rollout import Rollout
from afterwit.core.turn import Turn
from afterwit.core.verdict import Verdict

ROUNDING = 1e-3
"""How far above 0 a log-prob may be: half precision sums probabilities to a little more than 1."""
LOWEST = -1e4
"""A log-prob below is none: no softmax gives it, and one alone would make a whole update's loss infinite."""


def is_logprob(value: float) -> bool:
    """Whether a number can be a log-prob, by rounding a little above 0."""
    return LOWEST <= value <= ROUNDING


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherRow:
    """What the teacher would have said at one place: log-probs over its whole vocabulary, of K ids."""

    ids: tuple[int, ...]
    """The sampled id, then the likeliest others, falling. No id occurs twice."""
    logprobs: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.ids or len(self.ids) != len(self.logprobs):
            raise ValueError(f"{len(self.ids)} ids but {len(self.logprobs)} log-probs")
        if len(set(self.ids)) != len(self.ids):
            raise ValueError("an id occurs twice in a teacher's row")
        if not all(map(is_logprob, self.logprobs)):
            raise ValueError("a teacher's row holds what is no finite log-prob")
        if any(low > high for high, low in zip(self.logprobs[1:], self.logprobs[2:], strict=False)):
            raise ValueError("a teacher's row does not fall behind the sampled id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredTurn:
    """A turn that distils."""

    turn: Turn
    verdict: Verdict
    hints: tuple[str, ...]
    """The hints whose teachers ran."""
    chosen: tuple[int, ...]
    """For each sampled token, the index of the hint whose teacher its row is of."""
    rows: tuple[TeacherRow, ...]
    """For each sampled token, the id that ended the turn included."""
    teacher_version: int
    """The weight version that scored."""

    def __post_init__(self) -> None:
        ids = self.turn.sampled.ids
        if not len(self.rows) == len(self.chosen) == len(ids):
            raise ValueError(f"{len(ids)} ids but {len(self.rows)} rows and {len(self.chosen)} choices")
        if any(row.ids[0] != sampled for row, sampled in zip(self.rows, ids, strict=True)):
            raise ValueError(f"a row of turn {self.turn.id} does not begin with the sampled id")
        if any(not 0 <= hint < len(self.hints) for hint in self.chosen):
            raise ValueError(f"a token of turn {self.turn.id} chose none of its {len(self.hints)} hints")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscored:
    """A turn without rows, why, and its verdict if it was judged."""

    turn: Turn
    reason: Reason
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRollout:
    """A rollout with what became of each of its turns, in order."""

    rollout: Rollout
    turns: tuple[ScoredTurn | Unscored, ...]
    teacher: str
    """Whose weights score: `live` or `base`."""

    def __post_init__(self) -> None:
        given, scored = [turn.id for turn in self.rollout.in_order], [each.turn.id for each in self.turns]
        if given != scored:
            raise ValueError(f"a rollout of {len(given)} turns is scored with {len(scored)}, or others")

    @property
    def scored(self) -> tuple[ScoredTurn, ...]:
        return tuple(turn for turn in self.turns if isinstance(turn, ScoredTurn))

    @property
    def unscored(self) -> Counter[Reason]:
        """How many turns have no rows, by reason."""
        return Counter(turn.reason for turn in self.turns if isinstance(turn, Unscored))
