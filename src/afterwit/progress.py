"""Whether people correct the model less: complaints a session over time, with intervals. Pure.

intervals   of a share, of the difference of two shares, of a mean
progress    sessions in the order in which they began, cut into periods of equal size

The answer may be read every day, so only a few sizes are tested: 20 sessions, 30, 45, and so on. At the j-th
size the level is `LEVEL` / (j (j + 1)), which sums to `LEVEL` over all sizes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import NormalDist

PERIODS = 6
LEAST_SESSIONS = 5
"""Sessions of a period: fewer periods rather than smaller ones."""

LEVEL = 0.05
"""Chance that the change is ever claimed to be another than it is."""
FIRST_LOOK, GROWTH = 20, 1.5
"""Sessions of the first test, and how many times as many the next has."""
FIRST_SESSIONS, LAST_SESSIONS = 40, 100
"""Sessions of the beginning, at most a third of all, and of the end, at most the others."""
Z = 1.959963984540054
"""The standard normal quantile at 0.975."""
IMAGINED = 2.0
"""Complaints by which a variance is drawn to that of counts that are independent of each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonRequest:
    """A person's request, and whether they complained about the result, with a hint or without."""

    session: str
    source: str
    kind: str
    complaint: bool
    at: float
    """When it ended, in seconds since the epoch."""
    began: float = 0.0
    """When its session began; 0 if it was not read. By their ends, short answers would come first of what ran
    together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Sessions that began one after another."""

    since: float
    until: float
    """When the first of them began, and the last request ended, in seconds since the epoch."""
    sessions: int
    complaining: int
    """Sessions with a complaint."""
    requests: int
    complaints: int
    share_interval: Interval
    """Of the share of sessions with a complaint."""
    per_session_interval: Interval

    @property
    def share(self) -> float:
        return self.complaining / self.sessions

    @property
    def per_session(self) -> float:
        """Complaints a session."""
        return self.complaints / self.sessions


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


ANSWERS = {
    Trend.LESS: "You correct it less than at first",
    Trend.MORE: "You correct it more than at first",
    Trend.UNCLEAR: "No clear difference yet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How complaints went over time. Change, trend and answer are of the sessions at the last test."""

    periods: tuple[Period, ...]
    first: tuple[int, int] = (0, 0)
    """How many of how many of the first sessions had a complaint."""
    last: tuple[int, int] = (0, 0)
    change: Interval
    """Of the last share minus the first. Those of all tests hold the true changes together, with 95 %."""
    trend: Trend
    """Whether fewer sessions have a complaint than at first: by the change, or by the trend over all."""
    over_all: int | None = None
    """The sessions over all of which the trend is decided, because the change alone does not decide it."""

    @property
    def answer(self) -> str:
        """The trend in words."""
        return ANSWERS[self.trend]

    @property
    def sentence(self) -> str:
        """The answer and why, the same wherever a person reads it."""
        return f"{self.answer}: {self.why}."

    @property
    def why(self) -> str:
        """The numbers of the answer."""
        if not self.first[1]:
            ended = sum(period.sessions for period in self.periods)
            needed = f"the {FIRST_LOOK} sessions that the first test needs"
            return f"a person's reply was judged in {ended} of {needed}"
        shares = [
            f"{count / of:.0%} of the {which} {of}"
            for which, (count, of) in (("first", self.first), ("last", self.last))
        ]
        change = f"{in_points(self.change.low)} to {in_points(self.change.high)} points"
        words = f"{shares[0]} sessions had a complaint, {shares[1]} (change {change})"
        if self.over_all is None:
            return words
        become = "rarer" if self.trend is Trend.LESS else "more frequent"
        return f"{words}; over all {self.over_all} sessions complaints become {become}, which decides"


def progress(requests: Iterable[PersonRequest], *, periods: int = PERIODS) -> Progress:
    """Progress over these requests, in any order. Fewer than 20 sessions show no change."""
    grouped: dict[str, list[PersonRequest]] = defaultdict(list)
    for request in sorted(requests, key=lambda request: (request.began, request.at)):
        grouped[request.session].append(request)
    sessions = list(grouped.values())
    count = max(1, min(periods, len(sessions) // LEAST_SESSIONS))
    edges = [len(sessions) * at // count for at in range(count + 1)]
    found = tuple(_period(sessions[start:end]) for start, end in pairwise(edges) if end > start)
    size, z = _last_look(len(sessions))
    complained = [any(request.complaint for request in session) for session in sessions[:size]]
    beginning = complained[: min(size // 3, FIRST_SESSIONS)]
    end = complained[max(len(beginning), size - LAST_SESSIONS) :]
    first, last = (sum(beginning), len(beginning)), (sum(end), len(end))
    change = difference_interval(first, last, z=z)
    trend = Trend.of(change)
    whole = _over_all(complained, z) if trend is Trend.UNCLEAR else Trend.UNCLEAR
    return Progress(
        periods=found,
        first=first,
        last=last,
        change=change,
        trend=trend if whole is Trend.UNCLEAR else whole,
        over_all=None if whole is Trend.UNCLEAR else size,
    )


def _last_look(sessions: int) -> tuple[int, float]:
    """The size of the last test, 0 before the first, and the normal quantile at its level, of two sides."""
    size, look = 0, 0
    while (following := math.ceil(FIRST_LOOK * GROWTH**look)) <= sessions:
        size, look = following, look + 1
    return size, NormalDist().inv_cdf(1 - LEVEL / (2 * look * (look + 1))) if look else Z


def _over_all(complained: Sequence[bool], z: float) -> Trend:
    """Whether complaints have early or late places, by the sum of their ranks (Wilcoxon)."""
    size, count = len(complained), sum(complained)
    spread = math.sqrt(count * (size - count) * (size + 1) / 12)
    beyond = sum(rank for rank, bad in enumerate(complained, 1) if bad) - count * (size + 1) / 2
    if not spread or abs(beyond) <= z * spread:
        return Trend.UNCLEAR
    return Trend.MORE if beyond > 0 else Trend.LESS


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
        since=min(request.began or request.at for session in sessions for request in session),
        until=max(ends),
        sessions=len(sessions),
        complaining=complaining,
        requests=len(ends),
        complaints=sum(complaints),
        share_interval=wilson_interval(complaining, len(sessions)),
        per_session_interval=mean_interval(complaints),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """From the lower to the upper end, both included."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"an interval from {self.low} to {self.high}")


def in_points(share: float) -> str:
    """The end of a change in percentage points, with its sign: a decimal only where the rest would be 0."""
    return f"{100 * share:+.{1 if abs(share) < 0.005 else 0}f}"


def wilson_interval(count: int, of: int, *, z: float = Z) -> Interval:
    """The interval of a share, from `count` of `of` (Wilson, "Probable inference, the law of succession, and
    statistical inference", JASA 22, 1927). Nothing is known of 0 of 0.

    ValueError for counts that cannot be.
    """
    if not 0 <= count <= of:
        raise ValueError(f"{count} of {of}")
    if of == 0:
        return Interval(low=0.0, high=1.0)
    share, z2 = count / of, z * z / of
    middle = (share + z2 / 2) / (1 + z2)
    half = z / (1 + z2) * math.sqrt(share * (1 - share) / of + z2 / (4 * of))
    return Interval(
        low=0.0 if count == 0 else max(0.0, middle - half),
        high=1.0 if count == of else min(1.0, middle + half),
    )


def difference_interval(early: tuple[int, int], late: tuple[int, int], *, z: float = Z) -> Interval:
    """The interval of the late share minus the early one; each is (count, of).

    Method 10 of Newcombe, "Interval estimation for the difference between independent proportions",
    Statistics in Medicine 17, 1998. Without any in one of them, the interval is [-1, 1].
    """
    if not (early[1] and late[1]):
        return Interval(low=-1.0, high=1.0)
    (p1, one), (p2, two) = ((count / of, wilson_interval(count, of, z=z)) for count, of in (late, early))
    return Interval(
        low=p1 - p2 - math.hypot(p1 - one.low, two.high - p2),
        high=p1 - p2 + math.hypot(one.high - p1, p2 - two.low),
    )


def mean_interval(counts: Sequence[int]) -> Interval:
    """The interval of the mean of independent counts: the means from which this one is at most `Z` standard
    errors away, with a variance in proportion to the mean (the score interval of a quasi-Poisson count).

    So it is not a point where all counts are 0. ValueError without counts.
    """
    if not counts:
        raise ValueError("the mean of no counts")
    size, total = len(counts), sum(counts)
    mean = total / size
    spread = math.fsum((count - mean) ** 2 for count in counts)
    half = Z * Z * (spread + IMAGINED) / (total + IMAGINED) / (2 * size)
    root = math.sqrt(half * half + 2 * half * mean)
    return Interval(low=max(0.0, mean + half - root) if total else 0.0, high=mean + half + root)
