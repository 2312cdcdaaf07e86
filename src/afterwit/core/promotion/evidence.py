"""Evidence that a share lies above a bound, as e-values.

An e-value is a bet against "the share is at most `bound`": its mean is at most 1 while that holds, so it
exceeds 20 with a chance of at most 1 in 20 (Markov). Averages of e-values are e-values. The bet is spread
evenly over shares above the bound (method of mixtures: Ramdas et al., "Game-theoretic statistics and safe
anytime-valid inference", Statistical Science 38, 2023). Evidence that is looked at again and again needs a
detector: each component begins anew whenever it falls below 1 (Shin, Ramdas, Rinaldo, "E-detectors",
NEJSDS 2, 2024).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

SHARES = 24
"""Shares that the bet is spread over: the midpoints of as many equal parts of (bound, 1)."""


def e_value(lost: int, of: int, *, bound: float) -> float:
    """The e-value of `lost` among `of` against "at most a share `bound` is lost"; 1 if nothing was looked at.

    Raises ValueError for counts that cannot be, or a bound outside (0, 1).
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
