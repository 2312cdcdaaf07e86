"""Whether a reply complains or thanks, read off a model's log-probs in place of its words. Pure.

A model that cannot write a vote still finds one of two answers to a short question likelier. Where the
border lies is the model's own, so it is measured on replies that are shipped, and trusted only as far as it
holds for replies that it was not measured on.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise

from afterwit.core.progress.intervals import wilson_interval

QUESTION = "Is this message positive or negative?"
POSITIVE, NEGATIVE = "Positive", "Negative"
"""The two answers. The log-odds of a reply are log P(POSITIVE) - log P(NEGATIVE)."""
COMPLAINT, THANKS = "complaint", "thanks"
"""Kinds of replies."""
LEAST_RIGHT = 0.7
"""A border is used if the share of replies that it tells apart is surely larger."""


@cache
def replies() -> Mapping[str, tuple[str, ...]]:
    """The shipped replies, by kind."""
    text = (files("afterwit.core.judging") / "replies.toml").read_text("utf-8")
    return {kind: tuple(said) for kind, said in tomllib.loads(text).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """Log-odds that tell one kind of replies from all others."""

    at: float
    right: int
    """Replies on the right side of a border that was measured without them."""
    of: int

    @property
    def holds(self) -> bool:
        """Whether it surely tells them apart."""
        return wilson_interval(self.right, self.of).low > LEAST_RIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class Borders:
    """How one model's log-odds are read."""

    complaint: Border
    """Below it lie complaints."""
    thanks: Border
    """Above it lie thanks."""

    def says(self, odds: float) -> int | None:
        """-1 a complaint, 1 thanks, 0 neither; None: complaints cannot be told from other replies."""
        if not self.complaint.holds:
            return None
        if odds < self.complaint.at:
            return -1
        return int(self.thanks.holds and odds > self.thanks.at)


def borders(odds: Mapping[str, Sequence[float]]) -> Borders:
    """From the log-odds of replies, by kind."""
    rest = {kind: [value for each, some in odds.items() if each != kind for value in some] for kind in odds}
    return Borders(
        complaint=_border(odds[COMPLAINT], rest[COMPLAINT]), thanks=_border(rest[THANKS], odds[THANKS])
    )


def _border(low: Sequence[float], high: Sequence[float]) -> Border:
    """Between values that should lie below it and values that should lie above it."""
    right = sum(value < _middle([*low[:at], *low[at + 1 :]], high) for at, value in enumerate(low))
    right += sum(value > _middle(low, [*high[:at], *high[at + 1 :]]) for at, value in enumerate(high))
    return Border(at=_middle(low, high), right=right, of=len(low) + len(high))


def _middle(low: Sequence[float], high: Sequence[float]) -> float:
    """Halfway between two neighbours, where most values of both lie on their side, both weighing the same."""
    values = sorted({*low, *high})
    places = [(below + above) / 2 for below, above in pairwise(values)]

    def told_apart(place: float) -> float:
        return sum(v < place for v in low) / len(low) + sum(v > place for v in high) / len(high)

    return max(places, key=told_apart, default=values[0])
