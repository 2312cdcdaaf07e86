"""The runs of one entry of the comparison."""

from __future__ import annotations

from dataclasses import dataclass

from afterwit.demo.people import MEASURE
from experiments.simulation.plan import Point, RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """An entry's runs, one for each seed."""

    name: str
    runs: tuple[RunResult, ...]

    def points(self, interactions: int) -> list[Point]:
        """The runs' measurements then."""
        return [run.at(interactions, MEASURE) for run in self.runs]
