"""trackio, on this machine or, by its own TRACKIO_SPACE_ID or TRACKIO_SERVER_URL, elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from afterwit.tracking.trackers import Run, Tracker


class TrackioTracker:
    """Its points carry the time at which they are told."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, step: int, values: Mapping[str, float], at: float) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


def opened(run: Run) -> Tracker:
    """A run that goes on under its name. Nothing of the machine is told."""
    os.environ.setdefault("TRACKIO_DIR", str(run.folder / "trackio"))  # read once, at import
    import trackio

    found = trackio.init(
        run.project, name=run.id, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False
    )
    return TrackioTracker(found)
