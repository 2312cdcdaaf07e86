"""Trackers get the numbers of each version at its commit. A library is imported when its tracker opens."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import time_ns
from typing import Any, ClassVar
from uuid import uuid4

from afterwit.store import Store
from afterwit.tracking.values import newest_values

log = logging.getLogger("afterwit.tracking")

MLFLOW_TAG = "afterwit.run"
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
        if self.folder is not None and os.path.expanduser(self.folder).startswith("~"):
            raise ValueError(f"folder is {self.folder!r}, but there is no such user")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The one run of a home, which goes on after a restart."""

    project: str
    id: str
    """Lower-case letters and digits."""
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracker:
    """An open tracker."""

    log: Callable[[int, Mapping[str, float], float], object]
    """The number of a version, its values by name, and when it was committed, in seconds since the epoch."""
    close: Callable[[], object] = lambda: None


class Trackers:
    """Gives versions to the trackers of the settings, in a thread of its own: no update waits for them.

    A tracker that fails is closed with a warning; the next version opens it again.
    """

    def __init__(
        self,
        settings: TrackingSettings,
        home: Path,
        openers: Mapping[str, Callable[[Run], Tracker]] | None = None,
    ) -> None:
        self._openers = {name: (openers or OPENERS)[name] for name in settings.trackers}
        self._project = settings.project
        self._folder = home / "tracking" if settings.folder is None else Path(settings.folder).expanduser()
        self._open: dict[str, Tracker] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="afterwit-trackers")

    def committed(self, store: Store) -> None:
        """Give the newest version of the store to each tracker."""
        if self._openers and (found := newest_values(store)) is not None:
            version, values = found
            run = Run(project=self._project, id=run_id(store), folder=self._folder)
            self._thread.submit(self._give, run, version.number, values, version.committed_at)

    def close(self) -> None:
        """Finish what is under way and close all trackers."""
        self._thread.shutdown()
        for name in list(self._open):
            self._close(name)

    def _give(self, run: Run, step: int, values: Mapping[str, float], at: float) -> None:
        for name, opener in self._openers.items():
            try:
                if name not in self._open:
                    run.folder.mkdir(parents=True, exist_ok=True)
                    self._open[name] = opener(run)
                self._open[name].log(step, values, at)
            except Exception as error:  # the other trackers go on; it was given nothing but numbers
                words = " ".join(str(error).split())[:300]
                log.warning(
                    "the tracker %s did not take version %d: %s: %s", name, step, type(error).__name__, words
                )
                self._close(name)

    def _close(self, name: str) -> None:
        if (tracker := self._open.pop(name, None)) is not None:
            with suppress(Exception):  # it failed before, or this process ends
                tracker.close()


def run_id(store: Store) -> str:
    """The id of this store's one run, made at the first call."""
    with store.transaction():
        if (known := store.note("tracking.run")) is not None:
            return known
        made = uuid4().hex[:12]
        store.set_note("tracking.run", made)
    return made


def _wandb(run: Run) -> Tracker:
    """The server of WANDB_BASE_URL, or offline by WANDB_MODE. Only numbers are sent."""
    import wandb

    settings = wandb.Settings(
        console="off",
        silent=True,
        save_code=False,
        disable_git=True,
        disable_job_creation=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_save_requirements=False,
    )
    opened = wandb.init(
        project=run.project, id=run.id, resume="allow", dir=str(run.folder), settings=settings
    )
    return Tracker(
        log=lambda step, values, at: opened.log({**values, "_timestamp": at}, step=step, commit=True),
        close=opened.finish,
    )


def _tensorboard(run: Run) -> Tracker:
    """A new file next to those of earlier starts; `tensorboard --logdir` shows them as one curve."""
    from tensorboardX import SummaryWriter

    suffix = f".{time_ns()}"  # the library's names of files differ by the second only
    writer = SummaryWriter(str(run.folder / "tensorboard" / run.id), filename_suffix=suffix)

    def log(step: int, values: Mapping[str, float], at: float) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step, walltime=at)
        writer.flush()

    return Tracker(log=log, close=writer.close)


def _trackio(run: Run) -> Tracker:
    """On this machine, or where TRACKIO_SPACE_ID or TRACKIO_SERVER_URL point. It stamps points itself."""
    os.environ.setdefault("TRACKIO_DIR", str(run.folder / "trackio"))  # read once, at import
    import trackio

    opened: Any = trackio.init(
        run.project, name=run.id, resume="allow", embed=False, auto_log_gpu=False, auto_log_cpu=False
    )
    return Tracker(log=lambda step, values, at: opened.log(dict(values), step=step), close=opened.finish)


def _mlflow(run: Run) -> Tracker:
    """The run with this id as a tag, on the server of MLFLOW_TRACKING_URI or in files; it stays open."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    where = os.environ.get("MLFLOW_TRACKING_URI")
    if where is None:
        where = (run.folder / "mlflow").absolute().as_uri()
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # else MLflow requires a database
    client = MlflowClient(tracking_uri=where)
    experiment = client.get_experiment_by_name(run.project)
    number = client.create_experiment(run.project) if experiment is None else experiment.experiment_id
    found = client.search_runs([number], filter_string=f"tags.`{MLFLOW_TAG}` = '{run.id}'", max_results=1)
    known = found[0] if found else client.create_run(number, run_name=run.id, tags={MLFLOW_TAG: run.id})

    def log(step: int, values: Mapping[str, float], at: float) -> None:
        points = [Metric(name, value, int(at * 1000), step) for name, value in values.items()]
        client.log_batch(known.info.run_id, metrics=points)

    return Tracker(log=log)


OPENERS: Mapping[str, Callable[[Run], Tracker]] = {
    "wandb": _wandb,
    "tensorboard": _tensorboard,
    "trackio": _trackio,
    "mlflow": _mlflow,
}
