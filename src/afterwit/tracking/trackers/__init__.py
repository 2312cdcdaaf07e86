"""The port of who is told, and the table of those there are. A library is imported when its tracker opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The one run of a home: it goes on after a restart."""

    project: str
    id: str
    """Lower-case letters and digits."""
    folder: Path
    """Where files go. It may not be there yet."""


class Tracker(Protocol):
    """One program that is told. It may raise what it likes: it is then closed, and opened again later."""

    def log(self, step: int, values: Mapping[str, float], at: float) -> None:
        """Numbers of version `step`, by name; it came at `at`, in seconds since the epoch. On return they are
        written, or on their way by the library's own means. Steps grow, but one may come twice, with the same
        numbers.
        """
        ...

    def close(self) -> None:
        """Finish what is under way. Nothing may be called afterwards."""
        ...


TRACKERS: Mapping[str, tuple[str, str]] = {
    "wandb": ("wandb", "to_wandb"),
    "tensorboard": ("tensorboardX", "to_tensorboard"),
    "trackio": ("trackio", "to_trackio"),
    "mlflow": ("mlflow", "to_mlflow"),
}
"""The library that a tracker needs, and the module here that opens it."""


def open_tracker(name: str, run: Run) -> Tracker:
    """A tracker over this run. ModuleNotFoundError if its library is not installed."""
    opened = cast(Callable[[Run], Tracker], import_module(f"{__name__}.{TRACKERS[name][1]}").opened)
    run.folder.mkdir(parents=True, exist_ok=True)
    return opened(run)


def missing_module(name: str) -> str | None:
    """The module that this tracker needs and that is not installed; None: it is there."""
    module = TRACKERS[name][0]
    return module if find_spec(module) is None else None
