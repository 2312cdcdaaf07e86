"""Weights & Biases. Its own WANDB_API_KEY, WANDB_BASE_URL and WANDB_MODE say who, where and whether."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from afterwit.tracking.trackers import Run, Tracker


class WandbTracker:
    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, step: int, values: Mapping[str, float], at: float) -> None:
        self._run.log({**values, "_timestamp": at}, step=step, commit=True)

    def close(self) -> None:
        self._run.finish()


def opened(run: Run) -> Tracker:
    """A run that goes on under its id. Nothing of the machine, the code or what is printed is sent."""
    import wandb

    nothing_else = wandb.Settings(
        console="off",
        silent=True,
        save_code=False,
        disable_git=True,
        disable_job_creation=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_save_requirements=False,
    )
    found = wandb.init(
        project=run.project, id=run.id, resume="allow", dir=str(run.folder), settings=nothing_else
    )
    return WandbTracker(found)
