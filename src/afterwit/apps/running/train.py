"""The learner as a program: `afterwit train` in the foreground, and the process that `serve` starts.

What needs torch is imported once this process is the only learner: until then it costs next to nothing.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from afterwit.apps import build
from afterwit.apps.config import Settings
from afterwit.apps.model import model_folder
from afterwit.apps.running.logs import log_plainly
from afterwit.core.errors import AfterwitError, AlreadyRunning, NothingLearned, SettingError
from afterwit.learner.failures import FailureKind, failure_kind
from afterwit.stages.paused import on_person

if TYPE_CHECKING:
    from afterwit.checkpoints import Versions
    from afterwit.learner.trainer import Trainer
    from afterwit.store import Store

STAGE = "learn"
LOCK_POLL_S = 1.0
"""Seconds between two tries to become the only learner."""


def run(settings: Settings, home: Path, *, forever: bool) -> None:
    """Train over the home's store until no turn is left, or, `forever`, until SIGINT or SIGTERM.

    Raises NothingLearned if no turn was left in the first place, AlreadyRunning if there is another learner.
    """
    log_plainly()
    stop = threading.Event()

    def listen() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())

    learn(settings, home, stop=stop.is_set, loaded=listen, forever=forever, wait=False)


def run_atropos(settings: Settings, home: Path, *, steps: int | None) -> None:
    """Train on an Atropos server's batches, for so many updates or until SIGINT or SIGTERM.

    The first signal lets an update that has begun finish, the second ends it. Raises AlreadyRunning if the
    home has another learner.
    """
    log_plainly()
    stop = threading.Event()

    def stopping(number: int, _: object) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    folder = model_folder(settings.model, home)
    with closing(build.store_of_model(settings, home, folder)) as store:
        with build.versions_of(home, folder).learning():
            try:
                store.set_status(STAGE, True, "loading the model", now=time.time())
                trainer = _loaded(settings, home, folder)
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, stopping)
                trainer.begin(now=time.time())
                store.reconcile(trainer.versions.all(), now=time.time())
                build.atropos_consumer(settings, store, trainer).run(stop.is_set, steps=steps, rest=stop.wait)
            except AfterwitError as error:
                store.set_status(STAGE, False, str(error), now=time.time())
                raise


def learn(
    settings: Settings,
    home: Path,
    *,
    stop: Callable[[], bool],
    loaded: Callable[[], None] = lambda: None,
    forever: bool,
    wait: bool,
) -> None:
    """Run the learn stage in this process; call `loaded` when its model is in memory.

    If another learner has the home's lock: `wait` until it is free and report who holds it, or raise
    AlreadyRunning.
    Our own errors are reported as the stage's status before they are raised.
    """
    folder = model_folder(settings.model, home)
    versions = build.versions_of(home, folder)
    with closing(build.store_of_model(settings, home, folder)) as store, ExitStack() as lock:
        if not _only_learner(lock, versions, store, stop, wait=wait):
            return
        try:
            store.set_status(STAGE, True, "loading the model", now=time.time())
            trainer = _loaded(settings, home, folder)
            loaded()
            before = versions.newest()
            build.learn_stage(settings, store, trainer).run(stop, follow=forever, rest=time.sleep)
            if not (forever or stop()) and versions.newest() == before:
                raise NothingLearned(_why_nothing(store))
        except NothingLearned:  # no fault of the stage
            raise
        except AfterwitError as error:
            store.set_status(STAGE, False, str(error), now=time.time())
            raise


def _only_learner(
    lock: ExitStack, versions: Versions, store: Store, stop: Callable[[], bool], *, wait: bool
) -> bool:
    """Take the learner's lock; False if `stop` came first."""
    said = ""
    while not stop():
        try:
            lock.enter_context(versions.learning())
        except AlreadyRunning as error:
            if not wait:  # the status is the other learner's
                raise
            if said != str(error):
                said = str(error)
                store.set_status(STAGE, False, f"waiting for another learner to end: {said}", now=time.time())
            time.sleep(LOCK_POLL_S)
        else:
            return True
    return False


def _loaded(settings: Settings, home: Path, folder: Path) -> Trainer:
    """The trainer with its policy in memory, once its mathematics is seen to hold with this model."""
    with memory_shortage_named(folder):
        from afterwit.apps.doctor import mathematics
        from afterwit.apps.doctor.finding import require
        from afterwit.wire.model_text.render import Renderer

        trainer = build.trainer_of(settings, home, folder)
        require(mathematics.check(trainer, Renderer.load(folder), settings.judge.placement))
        return trainer


@contextmanager
def memory_shortage_named(folder: Path) -> Iterator[None]:
    """Turn any error for lack of memory into a SettingError that says what would help."""
    try:
        yield
    except Exception as error:  # lack of memory shows as many types
        if failure_kind(error) is not FailureKind.MEMORY:
            raise
        raise SettingError(
            f"too little memory to load {folder} for learning: free some, or use a smaller model,"
            " learner.dtype = 'bfloat16' or learner.lora_rank above 0"
        ) from error


def _why_nothing(store: Store) -> str:
    """What failed, or what the store holds instead of turns to learn from."""
    if (pause := store.paused()) is not None:
        return f"nothing was learned: {on_person(pause)}"
    status = next(status for status in store.statuses() if status.stage == STAGE)
    if not status.ok:
        return f"nothing was learned: {status.message}"
    counts = store.counts()
    states = ", ".join(f"{count} {state.value}" for state, count in counts.states.items()) or "no turns"
    reasons = ", ".join(f"{reason.value} {count}" for reason, count in counts.reasons.items())
    ended = f"; turns ended as {reasons}" if reasons else ""
    return f"nothing was learned: no judged turn was left to train; the store holds {states}{ended}"
