"""The watch over the version that serves: episodes that end badly, counted until it is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol, TypeVar

from afterwit.core.promotion.episodes import BadEnd
from afterwit.core.promotion.evidence import ongoing_evidence

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
