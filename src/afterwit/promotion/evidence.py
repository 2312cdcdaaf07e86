"""Evidence that a share lies above a bound, as e-values.

An e-value is a bet against "the share is at most `bound`": its mean is at most 1 while that holds, so it
exceeds 20 with a chance of at most 1 in 20 (Markov). Averages of e-values are e-values. The bet is spread
evenly over shares above the bound (method of mixtures: Ramdas et al., "Game-theoretic statistics and safe
anytime-valid inference", Statistical Science 38, 2023). Evidence that is looked at again and again needs a
detector: each component begins anew whenever it falls below 1 (Shin, Ramdas, Rinaldo, "E-detectors",
NEJSDS 2, 2024).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol, TypeVar

from afterwit.promotion.episodes import BadEnd

SHARES = 24
"""Shares that the bet is spread over: the midpoints of as many equal parts of (bound, 1)."""


def e_value(lost: int, of: int, *, bound: float) -> float:
    """The e-value of `lost` among `of` against "at most a share `bound` is lost"; 1 if nothing was looked at.

    Raises ValueError for counts that cannot be, or a bound outside (0, 1).
    """
    if not 0 <= lost <= of:
        raise ValueError(f"{lost} lost of {of}")
    return (
        math.fsum(
            (share / bound) ** lost * ((1 - share) / (1 - bound)) ** (of - lost) for share in _shares(bound)
        )
        / SHARES
    )


def ongoing_evidence(bad: Iterable[bool], *, bound: float) -> Iterator[float]:
    """The detector's value after each of these outcomes, against "at most a share `bound` is bad".

    An alarm at the value A comes, while the share stays below the bound, after A outcomes or more on average.
    """
    shares = _shares(bound)
    values = [0.0] * SHARES
    for outcome in bad:
        ratios = (share / bound if outcome else (1 - share) / (1 - bound) for share in shares)
        values = [max(value, 1.0) * ratio for value, ratio in zip(values, ratios, strict=True)]
        yield math.fsum(values) / SHARES


def _shares(bound: float) -> tuple[float, ...]:
    if not 0 < bound < 1:
        raise ValueError(f"a bound lies between 0 and 1, not at {bound}")
    return tuple(bound + (1 - bound) * (part + 0.5) / SHARES for part in range(SHARES))


PRIOR = 3
"""Requests that ended as the setting says, which the share before begins with: few requests say little."""


MOST = 2.0
"""Times the setting that requests may end badly because they did before, unless the model as it came did
worse: else a ruin that was confirmed by chance would be the measure of the next."""


class Ended(Protocol):
    """How an episode ended. A complaint that came with a hint is neither a bad end nor a good one."""

    @property
    def bad(self) -> BadEnd | None: ...

    @property
    def complaint(self) -> bool: ...


E = TypeVar("E", bound=Ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The rule: how many bad episodes are an alarm, and how many good ones confirm a version."""

    bound: float
    """The share of episodes that may end badly."""
    alarm_at: float
    """Evidence from which the version is taken back."""
    confirm_after: int
    """Episodes that must end well, with no bad one between them, before a version is confirmed."""
    newest: int = 24
    """Episodes before a confirmation of which no larger share than may have ended badly."""

    def may_end_badly(self, *, before: tuple[int, int], base: tuple[int, int]) -> float:
        """The share of episodes that may end badly: people who are often displeased anyway are no reason to
        go back.

        So it is their share before, if that is more. `before`: how many of how many episodes ended badly
        under the version that an alarm would return to and those that it was learned from; `base`: under the
        model as it came.
        """
        most = max(MOST * self.bound, self._share(base))
        return max(self.bound, min(most, self._share(before)))

    def evidence(self, ended: Sequence[Ended], *, bound: float) -> float:
        """The evidence of these episodes, oldest first, against "at most this share ends badly"."""
        return [0.0, *ongoing_evidence((each.bad is not None for each in ended), bound=bound)][-1]

    def confirms(self, ended: Sequence[E], *, bound: float) -> E | None:
        """The first of the good episodes in a row that confirm a version, if the newest one completes them.

        A row comes by chance too, so the newest episodes together must have ended no worse than may be.
        """
        row, newest = self.row(ended), ended[-self.newest :]
        if not row or row[-1] is not ended[-1] or len(row) % self.confirm_after:
            return None
        share = sum(each.bad is not None for each in newest) / len(newest)
        return row[-self.confirm_after] if share <= bound else None

    def row(self, ended: Sequence[E]) -> list[E]:
        """The episodes that ended well since the last bad one, oldest first."""
        since = list(takewhile(lambda each: each.bad is None, reversed(ended)))
        return [each for each in reversed(since) if not each.complaint]

    def _share(self, counted: tuple[int, int]) -> float:
        ended_badly, of = counted
        return (ended_badly + PRIOR * self.bound) / (of + PRIOR)
