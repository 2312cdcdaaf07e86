"""The phases of an update. The learn stage renews its leases by them, and tests watch them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import StrEnum
from time import perf_counter


class Phase(StrEnum):
    """In the order in which an update passes them; SCORING and STEPPED come once per pass and per epoch."""

    CLAIMED = "claimed"
    SCORING = "scoring"
    STEPPED = "stepped"
    WRITING = "writing"
    """The weights are on disk, the optimiser's state and the manifest are not."""
    WRITTEN = "written"
    """The manifest is in place: the update has happened, the store does not know it yet."""
    COMMITTED = "committed"


Progress = Callable[[Phase], None]


class PhaseTimes:
    """A `Progress` that also adds up the seconds from each report to the next, by what was done meanwhile."""

    DONE: Mapping[Phase, str] = {Phase.SCORING: "passes", Phase.STEPPED: "step"}

    def __init__(self, progress: Progress, clock: Callable[[], float] = perf_counter) -> None:
        self._progress, self._clock = progress, clock
        self._last = clock()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def __call__(self, phase: Phase) -> None:
        if phase in self.DONE:
            self.done(self.DONE[phase])
        self._progress(phase)

    def done(self, what: str) -> None:
        """The time since the last report went into this."""
        now = self._clock()
        self._seconds[what] += now - self._last
        self._last = now

    def metrics(self) -> dict[str, float]:
        """`seconds_passes`, `seconds_step` and their like, for the manifest."""
        return {f"seconds_{what}": seconds for what, seconds in self._seconds.items()}
