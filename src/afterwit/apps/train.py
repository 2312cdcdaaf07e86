"""The learner as a program: in the foreground for `train`, as `serve`'s child for the whole loop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from afterwit.apps import build
from afterwit.apps.config import Settings
from afterwit.apps.doctor import mathematics
from afterwit.apps.doctor.finding import require
from afterwit.apps.logs import log_plainly
from afterwit.apps.model import model_folder
from afterwit.core.errors import AfterwitError, AlreadyRunning
from afterwit.wire.model_text.render import Renderer


def run(settings: Settings, home: Path, *, forever: bool) -> None:
    """Train over the home's store until no batch is left, or, `forever`, until SIGINT or SIGTERM."""
    log_plainly()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    learn(settings, home, stop=stop.is_set, forever=forever)


def learn(settings: Settings, home: Path, *, stop: Callable[[], bool], forever: bool) -> None:
    """The learn stage in this process, once its mathematics is seen to hold with this model."""
    folder = model_folder(settings.model, home)
    store = build.store_of_model(settings, home, folder)
    try:
        trainer = build.trainer_of(settings, home, folder)
        require(mathematics.check(trainer.policy().model, Renderer.load(folder), settings.judge.placement))
        build.learn_stage(store, trainer).run(stop, follow=forever, rest=time.sleep)
    except AlreadyRunning:  # the other one's words are what /readyz shows
        raise
    except AfterwitError as error:
        store.set_status("learn", False, str(error), now=time.time())
        raise
    finally:
        store.close()
