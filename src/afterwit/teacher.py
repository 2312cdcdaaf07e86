"""A teacher on a server: its log-probs, and its port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Ids = tuple[int, ...]

ROUNDING = 1e-3
"""The most that a log-prob may be above 0: half precision sums probabilities to a little more than 1."""

LOWEST = -1e4
"""Lower values are not log-probs: no softmax gives them, and one would make an update's loss infinite."""


def is_logprob(value: float) -> bool:
    """Whether a number can be a log-prob, by rounding a little above 0."""
    return LOWEST <= value <= ROUNDING


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherRow:
    """The teacher's log-probs of K ids at one position, over its whole vocabulary."""

    ids: tuple[int, ...]
    """The sampled id, then the likeliest others, falling. No id occurs twice."""
    logprobs: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.ids or len(self.ids) != len(self.logprobs):
            raise ValueError(f"{len(self.ids)} ids but {len(self.logprobs)} log-probs")
        if len(set(self.ids)) != len(self.ids):
            raise ValueError("an id occurs twice in a teacher's row")
        if not all(map(is_logprob, self.logprobs)):
            raise ValueError("a teacher's row holds a log-prob that is not finite")
        if any(low > high for high, low in zip(self.logprobs[1:], self.logprobs[2:], strict=False)):
            raise ValueError("a teacher's row does not fall after the sampled id")


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherScores:
    """A teacher's log-probs of one response of T ids, at temperature 1, over the whole vocabulary."""

    sampled: tuple[float, ...]
    """Of the response's ids, [T]."""
    ids: tuple[Ids, ...]
    """Its own likeliest at each place, `[T][K]`: falling, of equals the lower id first."""
    logprobs: tuple[tuple[float, ...], ...]
    """Of these ids."""
    asked_ids: tuple[Ids, ...] = ()
    """Ids that it was asked about at each place, `[T][J]`; (): it was not asked."""
    asked: tuple[tuple[float, ...], ...] = ()
    """Its log-probs of these ids. -inf: it rules the id out."""

    def __post_init__(self) -> None:
        if not len(self.sampled) == len(self.ids) == len(self.logprobs):
            raise ValueError(
                f"{len(self.sampled)} sampled ids, but a top-K of {len(self.ids)} and {len(self.logprobs)}"
            )
        _same_size("top-K", self.ids, self.logprobs)
        if self.asked and len(self.asked) != len(self.sampled):
            raise ValueError(f"{len(self.sampled)} sampled ids, but answers at {len(self.asked)} places")
        _same_size("answers", self.asked_ids, self.asked)


def _same_size(what: str, *tables: tuple[tuple[float, ...], ...]) -> None:
    sizes = {len(row) for table in tables for row in table}
    if len(sizes) > 1:
        raise ValueError(f"places have {what} of different sizes: {sorted(sizes)}")


class TeacherServer(Protocol):
    """A teacher on a server. Every method raises EngineError if it cannot be asked."""

    def open(self) -> None:
        """Find the server fit. SettingError, with what would help, if it is not. Again: nothing happens."""

    @property
    def context_length(self) -> int:
        """Most tokens of prompt and response together that it scores. Opens it."""

    def score(
        self, rows: Sequence[tuple[Ids, Ids]], at: Sequence[Sequence[Ids]] | None = None
    ) -> list[TeacherScores]:
        """Of each response after its prompt, in order; `at` are more ids of each place to tell."""
