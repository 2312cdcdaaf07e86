"""Whether people correct the model less: complaints a session over time, with intervals. Pure.

intervals   of a share, of the difference of two shares, of a mean
progress    sessions in the order in which they began, cut into periods of equal size
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from random import Random

PERIODS = 6
"""Periods at most."""
LEAST_SESSIONS = 5
"""Sessions of a period: fewer periods rather than smaller ones."""

Z = 1.959963984540054
"""The standard normal quantile at 0.975."""
DRAWS = 2000
"""Resamples of a bootstrap, at most."""
MOST_VALUES = 2_000_000
"""Values that a bootstrap draws in all, so that it stays a matter of a second."""
LEAST_DRAWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonRequest:
    """A person's request, and whether they complained about the result."""

    session: str
    source: str
    kind: str
    complaint: bool
    at: float
    """When it ended, in seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Sessions that began one after another."""

    since: float
    until: float
    """The ends of their first and last requests, in seconds since the epoch."""
    sessions: int
    complaining: int
    """Sessions with a complaint."""
    requests: int
    complaints: int
    counts: tuple[int, ...]
    """Complaints of each session."""
    share_interval: Interval
    """Of the share of sessions with a complaint."""

    @property
    def share(self) -> float:
        return self.complaining / self.sessions

    @property
    def per_session(self) -> float:
        """Complaints a session."""
        return self.complaints / self.sessions

    @property
    def per_session_interval(self) -> Interval:
        """Of the complaints a session, by resampling sessions: up to a second of work."""
        return bootstrap_mean(self.counts, seed=self.sessions)


class Trend(StrEnum):
    """Whether a share is smaller than at first."""

    LESS = "less"
    MORE = "more"
    UNCLEAR = "unclear"
    """No difference, or too little to tell."""

    @classmethod
    def of(cls, change: Interval) -> Trend:
        """The trend that the interval of a change shows: unclear if it holds zero."""
        if change.high < 0:
            return cls.LESS
        return cls.MORE if change.low > 0 else cls.UNCLEAR


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How complaints went over time."""

    periods: tuple[Period, ...]
    change: Interval
    """Of the last period's share of sessions with a complaint minus the first's."""

    @property
    def trend(self) -> Trend:
        """Whether a smaller share of sessions has a complaint than at first."""
        return Trend.of(self.change)


def progress(requests: Iterable[PersonRequest], *, periods: int = PERIODS) -> Progress:
    """Progress over these requests, in any order. Fewer than two periods show no change."""
    grouped: dict[str, list[PersonRequest]] = defaultdict(list)
    for request in sorted(requests, key=lambda request: request.at):
        grouped[request.session].append(request)
    sessions = list(grouped.values())
    count = max(1, min(periods, len(sessions) // LEAST_SESSIONS))
    edges = [len(sessions) * at // count for at in range(count + 1)]
    found = tuple(_period(sessions[start:end]) for start, end in pairwise(edges) if end > start)
    if len(found) < 2:
        return Progress(periods=found, change=Interval(low=-1.0, high=1.0))
    first, last = found[0], found[-1]
    change = difference_interval((first.complaining, first.sessions), (last.complaining, last.sessions))
    return Progress(periods=found, change=change)


def by(requests: Iterable[PersonRequest], key: Callable[[PersonRequest], str]) -> dict[str, Progress]:
    """Progress for each source, or each kind, in two periods: those with most requests first."""
    parts: dict[str, list[PersonRequest]] = defaultdict(list)
    for request in requests:
        parts[key(request)].append(request)
    ordered = sorted(parts.items(), key=lambda part: (-len(part[1]), part[0]))
    return {name: progress(part, periods=2) for name, part in ordered}


def _period(sessions: Sequence[Sequence[PersonRequest]]) -> Period:
    complaints = [sum(request.complaint for request in session) for session in sessions]
    complaining = sum(count > 0 for count in complaints)
    ends = [request.at for session in sessions for request in session]
    return Period(
        since=min(ends),
        until=max(ends),
        sessions=len(sessions),
        complaining=complaining,
        requests=len(ends),
        complaints=sum(complaints),
        counts=tuple(complaints),
        share_interval=wilson_interval(complaining, len(sessions)),
    )


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
    Statistics in Medicine 17, 1998. Without any in one of them, the interval is [-1, 1].
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

    The same seed gives the same interval. The interval of one value is the value itself.
    ValueError without values.
    """
    if not values:
        raise ValueError("the mean of no values")
    random, size = Random(seed), len(values)
    draws = min(DRAWS, max(LEAST_DRAWS, MOST_VALUES // size))
    means = sorted(math.fsum(random.choices(values, k=size)) / size for _ in range(draws))
    tail = (draws - 1) * 0.025
    return Interval(low=means[math.floor(tail)], high=means[math.ceil(draws - 1 - tail)])
