"""The learner as a program: in the foreground for `train`, as `serve`'s child for the whole loop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from afterwit.apps.config import Settings
from afterwit.apps.logs import log_plainly
from afterwit.apps.wiring import bound_store, model_folder, trainer_of, worker_name


def run(settings: Settings, home: Path, *, forever: bool) -> None:
    """Train over the home's store until no batch is left, or, `forever`, until SIGINT or SIGTERM."""
    log_plainly()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    learn(settings, home, stop=stop.is_set, forever=forever)


def learn(settings: Settings, home: Path, *, stop: Callable[[], bool], forever: bool) -> None:
    """The learn stage in this process."""
    from afterwit.stages.learn import Learn

    folder = model_folder(settings, home)
    store = bound_store(settings, home, folder)
    try:
        stage = Learn(store, trainer_of(settings, home, folder), owner=worker_name("learn"))
        stage.run(stop, follow=forever, rest=time.sleep)
    finally:
        store.close()
