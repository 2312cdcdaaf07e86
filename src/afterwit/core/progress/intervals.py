"""Intervals that hold the true value in 95 of 100 cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

Z = 1.959963984540054
"""The standard normal quantile at 0.975."""
DRAWS = 2000
"""Resamples of a bootstrap, at most."""
MOST_VALUES = 2_000_000
"""Values that a bootstrap draws in all, so that it stays a matter of a second."""
LEAST_DRAWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """From the lower to the upper end, both included."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"an interval from {self.low} to {self.high}")


def wilson_interval(count: int, of: int) -> Interval:
    """The interval of a share, from `count` of `of` (Wilson, "Probable inference, the law of succession, and
    statistical inference", JASA 22, 1927). Nothing is known of 0 of 0.

    ValueError for counts that cannot be.
    """
    if not 0 <= count <= of:
        raise ValueError(f"{count} of {of}")
    if of == 0:
        return Interval(low=0.0, high=1.0)
    share, z2 = count / of, Z * Z / of
    middle = (share + z2 / 2) / (1 + z2)
    half = Z / (1 + z2) * math.sqrt(share * (1 - share) / of + z2 / (4 * of))
    return Interval(
        low=0.0 if count == 0 else max(0.0, middle - half),
        high=1.0 if count == of else min(1.0, middle + half),
    )


def difference_interval(early: tuple[int, int], late: tuple[int, int]) -> Interval:
    """The interval of the late share minus the early one; each is (count, of).

    Method 10 of Newcombe, "Interval estimation for the difference between independent proportions",
    Statistics in Medicine 17, 1998. Anything may be if one of them is of nothing.
    """
    if not (early[1] and late[1]):
        return Interval(low=-1.0, high=1.0)
    (p1, one), (p2, two) = ((count / of, wilson_interval(count, of)) for count, of in (late, early))
    return Interval(
        low=p1 - p2 - math.hypot(p1 - one.low, two.high - p2),
        high=p1 - p2 + math.hypot(one.high - p1, p2 - two.low),
    )


def bootstrap_mean(values: Sequence[float], *, seed: int) -> Interval:
    """The interval of the mean of independent values, by resampling them (Efron's percentiles).

    The same seed gives the same interval. One value says nothing of how it varies: its interval is itself.
    ValueError without values.
    """
    if not values:
        raise ValueError("the mean of no values")
    random, size = Random(seed), len(values)
    draws = min(DRAWS, max(LEAST_DRAWS, MOST_VALUES // size))
    means = sorted(math.fsum(random.choices(values, k=size)) / size for _ in range(draws))
    tail = (draws - 1) * 0.025
    return Interval(low=means[math.floor(tail)], high=means[math.ceil(draws - 1 - tail)])
