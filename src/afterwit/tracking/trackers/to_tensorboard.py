"""TensorBoard's files, written without TensorBoard and without torch."""

from __future__ import annotations

from collections.abc import Mapping
from time import time_ns
from typing import Any

from afterwit.tracking.trackers import Run, Tracker


class TensorBoardTracker:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def log(self, step: int, values: Mapping[str, float], at: float) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step, walltime=at)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def opened(run: Run) -> Tracker:
    """A new file beside those of earlier starts; `tensorboard --logdir` shows them as one curve."""
    from tensorboardX import SummaryWriter

    own = f".{time_ns()}"  # the library's names of files differ by the second only
    return TensorBoardTracker(SummaryWriter(str(run.folder / "tensorboard" / run.id), filename_suffix=own))
