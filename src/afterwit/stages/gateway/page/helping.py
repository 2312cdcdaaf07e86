"""Whether learning helps: how often people complained at first, and how often of late. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from afterwit.core.progress import Interval, Request, Trend, difference_interval, wilson_interval
from afterwit.stages.gateway.page.plot import Band

BIN = 25
"""Turns, or requests, that one point of a curve counts."""
WINDOW = 100
"""Requests that are compared: the first ones with the newest."""
LEAST = 20
"""Requests from which on there is anything to say."""
ANSWERS = {
    Trend.LESS: "Yes: you correct it less often than at first.",
    Trend.MORE: "No: you correct it more often than at first.",
    Trend.UNCLEAR: "It cannot be told yet: the difference may be chance.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many of how many."""

    count: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Helping:
    """The answer, and what it rests on."""

    answer: str
    first: Share
    newest: Share
    change: Interval
    """Of the newest share minus the first, in 95 of 100 cases."""


def helping(first: Sequence[Request], newest: Sequence[Request], ended: int) -> Helping | None:
    """Whether people complain of fewer requests than at first; None while too few ended.

    The two windows do not overlap: of few requests, each is half.
    """
    size = min(WINDOW, ended // 2)
    if ended < LEAST:
        return None
    then, now = _complaints(first[:size]), _complaints(newest[-size:])
    change = difference_interval((then.count, then.of), (now.count, now.of))
    return Helping(answer=ANSWERS[Trend.of(change)], first=then, newest=now, change=change)


def shares(held: Sequence[bool], size: int = BIN) -> list[tuple[float, float]]:
    """The share that holds in each run of `size`, by the number of the run's last turn; the newest run is
    whole, so the first may be left out."""
    ends = range(len(held), size - 1, -size)
    return [(float(end), sum(held[end - size : end]) / size) for end in ends][::-1]


def intervals(points: Sequence[tuple[float, float]]) -> Band:
    """The interval of each share, in 95 of 100 cases."""
    found = [(x, wilson_interval(round(share * BIN), BIN)) for x, share in points]
    return [(x, interval.low, interval.high) for x, interval in found]


def _complaints(requests: Sequence[Request]) -> Share:
    return Share(count=sum(each.complaint for each in requests), of=len(requests))
