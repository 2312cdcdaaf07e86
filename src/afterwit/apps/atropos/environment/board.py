"""Metrics in a folder: for TensorBoard, and as JSON lines for any other program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LINES = "metrics.jsonl"


class Board:
    """Writes numbers by their names into a folder; None: nowhere."""

    def __init__(self, folder: str | None) -> None:
        self._writer: Any = None
        if folder is not None:
            from tensorboardX import SummaryWriter

            self._writer = SummaryWriter(folder)
            self._lines = (Path(folder) / LINES).open("a", encoding="utf-8")

    def add(self, values: Mapping[str, float], step: int) -> None:
        if self._writer is None or not values:
            return
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()
        print(json.dumps({"step": step, **values}), file=self._lines, flush=True)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._lines.close()
