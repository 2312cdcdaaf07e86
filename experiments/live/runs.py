"""Live runs as data: the contents of their reports, without the conversations."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afterwit.demo.live import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResult:
    """One run of the demo that is over."""

    world: str
    seed: int
    judge: str
    judge_accuracy: float
    """Share of the judge's right answers on held-out cases."""
    seconds: float
    """Wall time of the whole command."""
    points: tuple[Measurement, ...]
    settings: Mapping[str, Any]

    def at(self, interactions: int) -> Measurement:
        """One measurement; LookupError if nothing was measured then."""
        for point in self.points:
            if point.interactions == interactions:
                return point
        raise LookupError(f"nothing was measured after {interactions} interactions")


def result_of(report: str, *, judge_accuracy: float) -> LiveResult:
    """A run by its report.json."""
    facts = json.loads(report)
    return LiveResult(
        world=facts["world"],
        seed=facts["seed"],
        judge=facts["judge"],
        judge_accuracy=judge_accuracy,
        seconds=facts["seconds"],
        points=tuple(Measurement(**point) for point in facts["curve"]),
        settings=facts["settings"],
    )


@dataclass(frozen=True, slots=True)
class LiveRuns:
    """Finished live runs in a file, one JSON line each."""

    path: Path

    def read(self) -> dict[tuple[str, int], LiveResult]:
        """Every run by its world and seed."""
        if not self.path.exists():
            return {}
        lines = map(json.loads, self.path.read_text(encoding="utf-8").splitlines())
        results = [
            LiveResult(**line | {"points": tuple(Measurement(**point) for point in line["points"])})
            for line in lines
        ]
        return {(result.world, result.seed): result for result in results}

    def add(self, result: LiveResult) -> None:
        """Write one more line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(result), separators=(",", ":")) + "\n")
