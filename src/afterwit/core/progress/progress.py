"""Sessions in the order in which they began, cut into periods; the first against the last tells the trend.

Requests of one session depend on each other, sessions hardly do: a session is what is counted, and what is
resampled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from afterwit.core.progress.intervals import (
    Interval,
    bootstrap_mean,
    difference_interval,
    wilson_interval,
)

PERIODS = 6
"""Periods at most."""
LEAST_SESSIONS = 5
"""Sessions of a period: fewer periods rather than smaller ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a person asked for, and whether they complained of what they got."""

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
        """What the interval of a change tells: nothing if it holds zero."""
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


def progress(requests: Iterable[Request], *, periods: int = PERIODS) -> Progress:
    """Progress over these requests, in any order. Without two periods there is no change to tell."""
    grouped: dict[str, list[Request]] = defaultdict(list)
    for request in sorted(requests, key=lambda request: request.at):
        grouped[request.session].append(request)
    found = tuple(_period(part) for part in _cut(list(grouped.values()), periods))
    if len(found) < 2:
        return Progress(periods=found, change=Interval(low=-1.0, high=1.0))
    first, last = found[0], found[-1]
    change = difference_interval((first.complaining, first.sessions), (last.complaining, last.sessions))
    return Progress(periods=found, change=change)


def by(requests: Iterable[Request], key: Callable[[Request], str]) -> dict[str, Progress]:
    """Progress for each source, or each kind, in two periods: those with most requests first."""
    parts: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        parts[key(request)].append(request)
    ordered = sorted(parts.items(), key=lambda part: (-len(part[1]), part[0]))
    return {name: progress(part, periods=2) for name, part in ordered}


def _cut(sessions: Sequence[Sequence[Request]], periods: int) -> list[Sequence[Sequence[Request]]]:
    """Consecutive parts whose sizes differ by one at most."""
    count = max(1, min(periods, len(sessions) // LEAST_SESSIONS))
    edges = [len(sessions) * at // count for at in range(count + 1)]
    return [sessions[start:end] for start, end in pairwise(edges) if end > start]


def _period(sessions: Sequence[Sequence[Request]]) -> Period:
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
