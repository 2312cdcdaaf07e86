"""What tells programs outside."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from afterwit.config import Settings

if TYPE_CHECKING:
    from afterwit.store import AsyncStore
    from afterwit.tracking.stage import Tracking
    from afterwit.tracking.traces import OtlpTraces
    from afterwit.tracking.trackers import Tracker
    from afterwit.worker import Report


def check_tracking(settings: Settings) -> None:
    """ModuleNotFoundError if the library of a tracker or of the collector is not installed."""
    from afterwit.tracking.trackers import missing_module

    for name in settings.tracking.trackers:
        if (module := missing_module(name)) is not None:
            raise ModuleNotFoundError(
                f"tracking.trackers names {name}: there is no module {module}", name=module
            )
    if settings.tracking.otlp_url is not None:
        try:
            import_module("opentelemetry.sdk")
            import_module("opentelemetry.exporter.otlp.proto.http")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(str(error), name="opentelemetry.sdk") from error


def tracking_of(settings: Settings, home: Path, store: AsyncStore, report: Report) -> Tracking:
    """What tells the trackers that the settings name."""
    from afterwit.tracking.stage import Tracking
    from afterwit.tracking.traces import Traces

    trackers: dict[str, Callable[[str], Tracker]] = {
        name: _opener(settings, home, name) for name in settings.tracking.trackers
    }
    owner = f"{os.uname().nodename}:{home.resolve()}"  # a home has one gateway: a new one goes on at once
    traces = None if settings.tracking.otlp_url is None else Traces(store, partial(_collector, settings))
    return Tracking(store, trackers, owner=owner, now=time.time, report=report, traces=traces)


def _collector(settings: Settings) -> OtlpTraces:
    from afterwit.tracking.traces import OtlpTraces

    assert settings.tracking.otlp_url is not None
    return OtlpTraces(settings.tracking.otlp_url)


def _opener(settings: Settings, home: Path, name: str) -> Callable[[str], Tracker]:
    from afterwit.tracking.trackers import Run, open_tracker

    chosen = settings.tracking
    folder = home / "tracking" if chosen.folder is None else Path(chosen.folder).expanduser()
    return lambda run: open_tracker(name, Run(project=chosen.project, id=run, folder=folder))
