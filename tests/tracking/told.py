"""A store with versions, and a tracker that remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from afterwit.store import Store
from afterwit.tracking.trackers import Run, Tracker
from afterwit.version import Origin, Probe, SuiteResult, Version

METRICS = {"loss": 0.5, "samples": 8.0, "opd_samples": 2.0, "seconds_passes": 3.0, "reference_kl": 0.01}
LOST = SuiteResult(lost={"edit": (1, 4), "text": (0, 6)}, evidence=0.5)


def commit(store: Store, *numbers: int) -> None:
    """Versions that began at 1000 * number, were done 40 seconds later and served 2 seconds after that."""
    for number in numbers:
        at = 1000.0 * number
        store.commit_version(
            Version(
                number=number,
                parent=number - 1 if number else None,
                origin=Origin.UPDATE if number else Origin.BASE,
                created=at,
                probe=Probe(ids=(1,), logprobs=()),
                metrics={**METRICS, "loss": 1 / number} if number else {},
                suite=LOST if number else None,
            ),
            now=at + 40,
        )
        store.published(number, now=at + 42)


@dataclass
class Remembering:
    """A tracker. It refuses its first `fails` versions."""

    told: list[tuple[int, Mapping[str, float], float]] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    """The run of each opening."""
    fails: int = 0
    closed: int = 0

    def opened(self, run: Run) -> Tracker:
        self.runs.append(run.id)
        return Tracker(log=self._log, close=self._close)

    def _log(self, step: int, values: Mapping[str, float], at: float) -> None:
        if self.fails:
            self.fails -= 1
            raise ConnectionError("nobody listens")
        self.told.append((step, values, at))

    def _close(self) -> None:
        self.closed += 1
