"""Whether two computations of the same log-probs agree: number formats round, other weights differ.

All comparisons use these rules: an engine with the learner before a version serves, a server with its earlier
answers, a packed pass with plain ones, and `afterwit doctor`.

*Distance* is the mean |difference| in nats. The noise of a format is measured with weights that are known to
be the same, and three times as much is accepted; `most` bounds it, because other weights must not pass for
noise.

*Direction* shows which weights answered even where noise is larger than a version's change, because noise has
none. With the log-probs l of the right weights, r of others, and the answer e, all over the same tokens,

s = sum(d (e - r)) / sum(d^2),  d = l - r

is 1 on average if the right weights answered, and 0 if the others did: the slope of a regression through the
origin. Its standard error comes from what the slope of all other tokens leaves of each (HC3: MacKinnon and
White 1985), so that a few tokens with large changes and large rounding do not feign certainty.

*Identity* shows that nothing changed where even direction is too weak, as with whole weights in half
precision: one update changes a log-prob by a thousandth, rounding by fifty thousandths. The same weights give
the same answer to the bit, and weights with any difference give one that differs by the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

EXACT = ("float32", "float64")
MOST_EXACT, MOST_ROUNDED = 1e-3, 0.25
"""Nats of mean |difference| that formats of at least 24 bits, and of fewer, may cause. SmolLM2-135M in
bfloat16 was .03 to .07 from float32, on text and on random ids; other weights than the base's are nats
away."""

LEAST = 1e-4
"""Nats that are always accepted."""

MULTIPLE = 3.0
HALF_WAY = 0.5
"""Of the way from the others' weights to the right ones, or as far beyond."""

SURE = 4.0
"""Standard errors within which nothing is concluded. Normal noise refuses the right weights once in 30,000
times."""


def most(*dtypes: str) -> float:
    """The largest gap that computing in these formats can explain."""
    return MOST_EXACT if set(dtypes) <= set(EXACT) else MOST_ROUNDED


def allowed(noise: float, *dtypes: str) -> float:
    """The largest acceptable gap where the same weights were `noise` apart."""
    return min(most(*dtypes), max(LEAST, MULTIPLE * noise))


def gap(one: Sequence[float], other: Sequence[float]) -> float:
    """Mean |difference| in nats; may be NaN or infinite. ValueError unless both have the same number of
    tokens, and at least one."""
    if not one or len(one) != len(other):
        raise ValueError(f"{len(other)} log-probs were given for {len(one)} tokens")
    return sum(abs(left - right) for left, right in zip(one, other, strict=True)) / len(one)


def unchanged(
    answer: Sequence[float], earlier: Sequence[float], right: Sequence[float], other: Sequence[float]
) -> bool:
    """Whether an engine answers to the bit as it did with other weights, although those differ."""
    return gap(answer, earlier) == 0.0 and gap(right, other) > LEAST


class Share(NamedTuple):
    """The position of an answer between other weights (0) and the right ones (1): `s`, and its error."""

    value: float
    error: float

    @property
    def distinguishes(self) -> bool:
        """Whether right and other weights can be distinguished."""
        return self.error * SURE <= HALF_WAY

    @property
    def is_right(self) -> bool:
        """Whether the right weights may have answered."""
        return abs(1.0 - self.value) <= max(HALF_WAY, SURE * self.error)


def share(answer: Sequence[float], right: Sequence[float], other: Sequence[float]) -> Share:
    """The answer's position between the log-probs of other weights (0) and of the right ones (1).

    If both are equal, or differ at one token alone, the error is infinite.
    """
    way = [of_right - of_other for of_right, of_other in zip(right, other, strict=True)]
    squares = [step * step for step in way]
    square = sum(squares)
    if square == max(squares, default=0.0):
        return Share(1.0, math.inf)
    off = [said - of_right for said, of_right in zip(answer, right, strict=True)]
    slope = sum(step * each for step, each in zip(way, off, strict=True)) / square
    rest = [
        (each - slope * step) * square / (square - own)
        for step, each, own in zip(way, off, squares, strict=True)
    ]
    error = math.sqrt(sum((step * each) ** 2 for step, each in zip(way, rest, strict=True))) / square
    return Share(1.0 + slope, error)
