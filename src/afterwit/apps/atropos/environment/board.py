"""Metrics for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Board:
    """Writes numbers by their names into a folder; None: nowhere."""

    def __init__(self, folder: str | None) -> None:
        self._writer: Any = None
        if folder is not None:
            from tensorboardX import SummaryWriter

            self._writer = SummaryWriter(folder)

    def add(self, values: Mapping[str, float], step: int) -> None:
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
