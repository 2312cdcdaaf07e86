"""Whether two computations of the same log-probs agree: number formats round, other weights differ.

One rule for all that compares log-probs: an engine with the learner before a version serves, a server with
what it said before, a packed pass with plain ones, and `afterwit doctor`.

*How far* two computations are apart is the mean |difference| in nats. What a format makes of it is measured
with weights that are known to be the same, and three times as much is right; `most` bounds it, because other
weights must not pass for noise.

*Whose* weights answered is seen even where noise hides how far a version moved, because noise has no
direction. With the log-probs l of the right weights, r of others, and the answer e, all over the same tokens,

    s = sum(d (e - r)) / sum(d^2),  d = l - r

is 1 on average if the right weights answered, and 0 if the others did: the slope of a regression through the
origin. Its standard error comes from the residuals, token by token (White 1980), so that a few tokens which
move much and round much do not feign certainty.

*That nothing changed* is seen where even this is too little, as with whole weights in half precision: one
update moves a log-prob by a thousandth, and rounding by fifty. The same weights give the same answer to the
bit, and weights that differ in anything give one that differs by the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

EXACT = ("float32", "float64")
MOST_EXACT, MOST_ROUNDED = 1e-3, 0.25
"""Nats of mean |difference| that formats of 24 bits and more, and of fewer, may make. SmolLM2-135M in
bfloat16 was .03 to .07 from float32, on text and on random ids; other weights than the base's are nats
away."""

LEAST = 1e-4
"""Nats that are right whatever was measured."""

MULTIPLE = 3.0
HALF_WAY = 0.5
"""From the others' weights to the right ones, or as far beyond."""

SURE = 4.0
"""Standard errors within which nothing is told: right weights are refused once in 30,000 times."""


def most(*dtypes: str) -> float:
    """The largest gap that computing in these formats can explain."""
    return MOST_EXACT if set(dtypes) <= set(EXACT) else MOST_ROUNDED


def allowed(noise: float, *dtypes: str) -> float:
    """The largest gap that is right where the same weights were `noise` apart."""
    return min(most(*dtypes), max(LEAST, MULTIPLE * noise))


def gap(one: Sequence[float], other: Sequence[float]) -> float:
    """Mean |difference| in nats. ValueError unless both are of as many tokens, and of any; NaN and infinity
    come back as what they are."""
    if not one or len(one) != len(other):
        raise ValueError(f"{len(other)} log-probs were given for {len(one)} tokens")
    return sum(abs(left - right) for left, right in zip(one, other, strict=True)) / len(one)


def unchanged(
    answer: Sequence[float], earlier: Sequence[float], right: Sequence[float], other: Sequence[float]
) -> bool:
    """Whether an engine answers to the bit as it did with other weights, which say something else."""
    return gap(answer, earlier) == 0.0 and gap(right, other) > LEAST


class Share(NamedTuple):
    """How much of the way from other weights to the right ones an answer stands: `s`, and its error."""

    value: float
    error: float

    @property
    def tells(self) -> bool:
        """Whether right and other weights would be told apart."""
        return self.error * SURE <= HALF_WAY

    @property
    def is_right(self) -> bool:
        """Whether the right weights may have answered."""
        return abs(1.0 - self.value) <= max(HALF_WAY, SURE * self.error)


def share(answer: Sequence[float], right: Sequence[float], other: Sequence[float]) -> Share:
    """Where the answer stands between the log-probs of other weights (0) and of the right ones (1).

    Of weights that say the same it tells nothing: the error is infinite.
    """
    way = [of_right - of_other for of_right, of_other in zip(right, other, strict=True)]
    square = sum(step * step for step in way)
    if square == 0.0:
        return Share(1.0, math.inf)
    off = [said - of_right for said, of_right in zip(answer, right, strict=True)]
    slope = sum(step * each for step, each in zip(way, off, strict=True)) / square
    rest = [each - slope * step for step, each in zip(way, off, strict=True)]
    error = math.sqrt(sum((step * each) ** 2 for step, each in zip(way, rest, strict=True))) / square
    return Share(1.0 + slope, error)
