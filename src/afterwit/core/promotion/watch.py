"""The watch over the version that serves: episodes that end badly, counted until it is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from afterwit.core.promotion.evidence import ongoing_evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The rule: how many bad episodes are an alarm, and how many good ones confirm a version."""

    bound: float
    """The share of episodes that may end badly."""
    alarm_at: float
    """Evidence from which the version is taken back."""
    confirm_after: int
    """Episodes in a row that must not end badly before a version is confirmed."""
    newest: int = 24
    """Episodes before a confirmation of which no larger share than the bound may have ended badly."""

    def evidence(self, bad: Sequence[bool], *, before: tuple[int, int]) -> float:
        """The evidence of the episodes since the last alarm, oldest first, against "no worse than before".

        `before`: how many of how many episodes ended badly under the versions that an alarm would return to.
        """
        return [0.0, *ongoing_evidence(bad, bound=self._bound(before))][-1]

    def confirms(self, bad: Sequence[bool], *, before: tuple[int, int]) -> bool:
        """Whether the newest episode ends a row of good ones that confirms the version.

        A row comes by chance too, so the newest episodes together must have ended no worse than `before`.
        """
        row = len(list(takewhile(lambda outcome: not outcome, reversed(bad))))
        newest = bad[-self.newest :]
        return row > 0 and row % self.confirm_after == 0 and sum(newest) <= self._bound(before) * len(newest)

    def _bound(self, before: tuple[int, int]) -> float:
        """The share that may end badly: people who are often displeased anyway are no reason to go back.

        So it is their share before, if that is more; with one more episode added to them that ended as the
        setting says, because few episodes say little.
        """
        ended_badly, of = before
        return max(self.bound, (ended_badly + self.bound) / (of + 1))
