"""The effect of a variant with its uncertainty: differences from a world's own settings, by seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from experiments.simulation.plan import Point, RunResult

T_95 = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}
"""Half the width of a 95 % interval in standard errors, by the number of differences (Student)."""

Measure = Callable[[RunResult], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The mean of paired differences; `half` of its 95 % interval, None below three: two say too little."""

    mean: float
    half: float | None
    pairs: int

    @property
    def beyond_noise(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.half is not None and abs(self.mean) > self.half


def measure(interactions: int, split: str, what: Callable[[Point], float]) -> Measure:
    """One number of a run."""
    return lambda result: what(result.at(interactions, split))


def seeded(results: Sequence[RunResult]) -> dict[int, RunResult]:
    """The runs by their seeds."""
    return {result.facts["seed"]: result for result in results}


def difference(runs: Sequence[RunResult], own: Sequence[RunResult], of: Measure) -> Difference:
    """Variant less own, seed by seed; LookupError if no seed was run with both."""
    left, right = seeded(runs), seeded(own)
    found = [of(left[seed]) - of(right[seed]) for seed in sorted(left.keys() & right.keys())]
    if not found:
        raise LookupError("no seed was run with both")
    half = T_95[len(found)] * stdev(found) / sqrt(len(found)) if len(found) >= min(T_95) else None
    return Difference(mean=fmean(found), half=half, pairs=len(found))
