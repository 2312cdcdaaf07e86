"""Evidence that a share lies above a bound, as e-values, and how much of it decides.

An e-value is a bet against "the share is at most `bound`": its mean is at most 1 while that holds, so it
exceeds 20 with a chance of at most 1 in 20 (Markov). Averages of e-values are e-values. The bet is spread
evenly over shares above the bound (method of mixtures: Ramdas et al., "Game-theoretic statistics and safe
anytime-valid inference", Statistical Science 38, 2023). Evidence that is looked at again and again needs a
detector: each component restarts whenever it falls below 1 (Shin, Ramdas, Rinaldo, "E-detectors",
NEJSDS 2, 2024).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar, Protocol, TypeVar

from afterwit.ranges import above, at_least, within

SHARES = 24
"""Shares that the bet is spread over: the midpoints of this many equal parts of (bound, 1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionSettings:
    """When a version may serve, and when it is taken back; see [Safety](safety.md)."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    enabled: bool = True
    """false: every finite update is served; none is held or taken back."""
    may_lose: float = 0.10
    """Share of approved responses of each kind that a new version may answer otherwise."""
    hold_at: float = 20.0
    """Evidence (e-value) of a greater loss that holds an update; 20 holds at most 1 in 20 wrongly if
    responses are independent."""
    per_kind: int = 16
    """Approved responses in the test, for each kind: a tool with its flags, or text."""
    per_source: int = 6
    """The most of these from one source (a key) if others approved some, or an equal part if that is more."""
    share_of_update: float = 0.2
    """Tokens of the test as a share of the update's work, at least 4,096; kinds take turns."""
    may_end_badly: float = 0.15
    """Share of requests that may end badly: in a complaint without a hint, in repeated calls, cut off, or
    never."""
    alarm_at: float = 100.0
    """Evidence of a greater share that takes back all versions since the confirmed one. In simulations an
    alarm came after 46 requests if twice `may_end_badly` ended badly, after 13 if half did; a false one after
    1,300 if an eighth did."""
    confirm_after: int = 6
    """Requests in a row that must end well to confirm the version that served the first, with at most
    `may_end_badly` of the newest 24 ending badly. Complaints with a hint do not count."""
    no_end_s: float = 1800.0
    """Seconds without a tool's result before a request counts as never ended."""

    def __post_init__(self) -> None:
        within(self, 0, 1, "may_lose", "may_end_badly", "share_of_update")
        above(self, 0, "may_lose", "may_end_badly", "no_end_s")
        above(self, 1, "hold_at", "alarm_at")
        at_least(self, 1, "per_kind", "per_source", "confirm_after")


def e_value(lost: int, of: int, *, bound: float) -> float:
    """The e-value of `lost` among `of` against "at most a share `bound` is lost"; 1 for 0 of 0.

    Raises ValueError for impossible counts, or a bound outside (0, 1).
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
"""Imagined requests, of which the set share ended badly, added to those before: few requests show little."""
MOST = 2.0
"""How many times the setting may end badly because as many did before, unless the model as it came did worse.
Else a ruin that was confirmed by chance would be the measure of the next."""
NEWEST = 24
"""The newest episodes before a confirmation, of which no larger share than may end badly did."""


class Ended(Protocol):
    """How an episode ended. A complaint that came with a hint is neither a bad end nor a good one."""

    @property
    def bad(self) -> object | None: ...

    @property
    def complaint(self) -> bool: ...


E = TypeVar("E", bound=Ended)


def may_end_badly(setting: float, *, before: tuple[int, int], base: tuple[int, int]) -> float:
    """The share of episodes that may end badly: the setting, or the share before if that is more, because
    people who were often displeased before do not count against a version.

    `before`: how many of how many episodes ended badly under the version that an alarm would return to and
    those that it was learned from; `base`: under the model as it came.
    """

    def share(counted: tuple[int, int]) -> float:
        return (counted[0] + PRIOR * setting) / (counted[1] + PRIOR)

    return max(setting, min(share(before), max(MOST * setting, share(base))))


def watch_evidence(ended: Iterable[Ended], *, bound: float) -> float:
    """The evidence of these episodes, oldest first, against "at most this share ends badly"."""
    return [0.0, *ongoing_evidence((each.bad is not None for each in ended), bound=bound)][-1]


def confirming(ended: Sequence[E], *, after: int, bound: float) -> E | None:
    """The first of `after` good episodes in a row, if the newest one completes them; else None.

    A row also comes by chance, so the newest episodes together must not have ended worse than `bound`.
    """
    row, newest = good_row(ended), ended[-NEWEST:]
    if not row or row[-1] is not ended[-1] or len(row) % after:
        return None
    share = sum(each.bad is not None for each in newest) / len(newest)
    return row[-after] if share <= bound else None


def good_row(ended: Sequence[E]) -> list[E]:
    """The episodes that ended well since the last bad one, oldest first."""
    since = list(takewhile(lambda each: each.bad is None, reversed(ended)))
    return [each for each in reversed(since) if not each.complaint]
