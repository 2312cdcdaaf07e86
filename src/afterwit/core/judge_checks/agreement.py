"""Whether votes on one turn agree more than chance would have it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Over turns with two valid votes or more."""

    turns: int
    share: float | None
    """Of pairs of votes on one turn that are the same, each turn weighing by its votes; None: no turns."""
    alpha: float | None
    """Krippendorff's alpha for nominal data: 1 all agree, 0 as by chance, below 0 less than that. None:
    every vote is the same, so that chance would agree too."""

    @property
    def wrong(self) -> float | None:
        """The share of answers that would be wrong if each were by a chance of its own, and every answer one
        of two: w with 2 w (1 - w) pairs that differ. It sees no error that all votes share."""
        if self.share is None:
            return None
        return (1 - math.sqrt(max(0.0, 2 * self.share - 1))) / 2


def agreement(units: Iterable[Sequence[int]]) -> Agreement:
    """The agreement of the votes of each turn (Krippendorff, "Content Analysis", chapter 12).

    A turn with m votes counts each of its ordered pairs 1 / (m - 1) times.
    """
    rated = [votes for votes in units if len(votes) > 1]
    if not rated:
        return Agreement(turns=0, share=None, alpha=None)
    of_all = Counter(value for votes in rated for value in votes)
    size = of_all.total()
    differ = math.fsum(_unlike_pairs(Counter(votes)) / (len(votes) - 1) for votes in rated) / size
    by_chance = _unlike_pairs(of_all) / (size * (size - 1))
    return Agreement(turns=len(rated), share=1 - differ, alpha=1 - differ / by_chance if by_chance else None)


def _unlike_pairs(counts: Counter[int]) -> int:
    """Ordered pairs of unlike values."""
    return counts.total() ** 2 - sum(count * count for count in counts.values())
