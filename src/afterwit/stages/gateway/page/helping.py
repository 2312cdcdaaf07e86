"""Whether learning helps: how often turns were found bad at first, and how often of late. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from afterwit.core.progress import Interval, difference_interval
from afterwit.store import Outcome

BIN = 25
"""Turns that one point of a curve counts."""
WINDOW = 100
"""Turns that are compared: the first ones with the newest."""
LEAST = 20
"""Judged turns from which on there is anything to say."""


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


def helping(first: Sequence[Outcome], newest: Sequence[Outcome], judged: int) -> Helping | None:
    """Whether turns are found bad less often than at first; None while too few were judged.

    The two windows do not overlap: of few turns, each is half.
    """
    size = min(WINDOW, judged // 2)
    if judged < LEAST:
        return None
    then, now = _bad(first[:size]), _bad(newest[-size:])
    change = difference_interval((then.count, then.of), (now.count, now.of))
    if change.high < 0:
        answer = "Yes: turns are found bad less often than at first."
    elif change.low > 0:
        answer = "No: turns are found bad more often than at first."
    else:
        answer = "It cannot be told yet: the difference may be chance."
    return Helping(answer=answer, first=then, newest=now, change=change)


def shares(held: Sequence[bool], size: int = BIN) -> list[tuple[float, float]]:
    """The share that holds in each run of `size`, by the number of the run's last turn; the newest run is
    whole, so the first may be left out."""
    ends = range(len(held), size - 1, -size)
    return [(float(end), sum(held[end - size : end]) / size) for end in ends][::-1]


def _bad(outcomes: Sequence[Outcome]) -> Share:
    return Share(count=sum(each.reward == -1 for each in outcomes), of=len(outcomes))
