"""The section `[tracking]` of the settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import ClassVar

TRACKERS: Mapping[str, str] = {
    "wandb": "wandb",
    "tensorboard": "tensorboardX",
    "trackio": "trackio",
    "mlflow": "mlflow",
}
"""The module that each tracker needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingSettings:
    """Programs that get each version's numbers, and traces; see [Metrics](scale.md#metrics)."""

    TABLES: ClassVar[Mapping[str, Iterable[str]]] = {"trackers": TRACKERS}
    """The table whose keys a setting accepts."""

    trackers: tuple[str, ...] = ()
    """Programs that get each version's numbers (extra `tracking`)."""
    project: str = "afterwit"
    """The tracker's project for this home's run (MLflow: experiment)."""
    folder: str | None = None
    """The folder for trackers' files; unset: `tracking` in the home."""
    otlp_url: str | None = None
    """OpenTelemetry collector for spans (OTLP over HTTP, extra `otlp`), such as `http://127.0.0.1:4318`."""

    def __post_init__(self) -> None:
        if not self.project:
            raise ValueError("project is empty, but trackers need a name")
        if self.otlp_url is not None and not self.otlp_url.startswith(("http://", "https://")):
            raise ValueError(f"otlp_url is {self.otlp_url!r}, but must begin with http:// or https://")
        for name in self.trackers:
            if name not in TRACKERS:
                raise ValueError(f"trackers names {name!r}, but must name some of {', '.join(TRACKERS)}")
        if len(set(self.trackers)) < len(self.trackers):
            raise ValueError(f"trackers names one twice: {', '.join(self.trackers)}")

    def require_libraries(self) -> None:
        """ModuleNotFoundError if the library of a tracker or of the collector is not installed."""
        for name in self.trackers:
            if find_spec(module := TRACKERS[name]) is None:
                raise ModuleNotFoundError(
                    f"tracking.trackers names {name}: there is no module {module}", name=module
                )
        if self.otlp_url is not None:
            try:
                import_module("opentelemetry.sdk")
                import_module("opentelemetry.exporter.otlp.proto.http")
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError(str(error), name="opentelemetry.sdk") from error
