"""Settings of what is told outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from afterwit.core.ranges import above

TrackerName = Literal["wandb", "tensorboard", "trackio", "mlflow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingSettings:
    """Who is told what each version learned; the page on tracking says what they get."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    trackers: tuple[TrackerName, ...] = ()
    """Any of `wandb`, `tensorboard`, `trackio`, `mlflow`. One that is added later is told the whole history.
    Their libraries come with the extra `tracking`."""
    project: str = "afterwit"
    """The project that a tracker shows this home's run in; MLflow calls it an experiment."""
    folder: str | None = None
    """Where trackers write files; unset: `tracking` in the home."""
    poll_s: float = 10.0
    """Seconds between two looks for what is new."""

    def __post_init__(self) -> None:
        above(self, 0, "poll_s")
        if not self.project:
            raise ValueError("project is empty, but trackers need a name")
        if len(set(self.trackers)) < len(self.trackers):
            raise ValueError(f"trackers names one twice: {', '.join(self.trackers)}")
