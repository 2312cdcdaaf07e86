"""The learner as a program: `afterwit train` in the foreground, and the process that `serve` starts.

Torch is imported once this process is the only learner: until then it costs next to nothing.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from afterwit import build, plugins
from afterwit.config import Settings
from afterwit.errors import (
    AfterwitError,
    AlreadyRunning,
    NothingLearned,
    SettingError,
    StoreUnavailable,
    VersionsUnavailable,
)
from afterwit.home.home import refuse_another_home
from afterwit.learning.distributed import Placed
from afterwit.learning.health import STAGE, FailureKind, failure_kind, on_person
from afterwit.printing.terminal import end_at_signals
from afterwit.running.logs import set_up
from afterwit.running.ranks import launch, member, starts_ranks

if TYPE_CHECKING:
    from afterwit.checkpoints.versions import Versions
    from afterwit.learning.trainer import Trainer
    from afterwit.store import Store
    from afterwit.version import Version

    Kind = Callable[..., Trainer]
    Committed = Callable[[Store], None]
    Work = Callable[[Settings, Store, Trainer, Committed], None]

LOCK_POLL_S = 1.0
"""Seconds between two attempts to become the only learner."""


@runtime_checkable
class BatchSource(Protocol):
    """Batches that come from elsewhere than the home's store."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Settings by section, below all that a user sets."""

    def run(
        self,
        settings: Settings,
        trainer: Trainer,
        *,
        steps: int | None,
        stop: Callable[[], bool],
        rest: Callable[[float], object],
        report: Callable[[bool, str], object],
        committed: Callable[[Version], object],
        before_batch: Callable[[], str | None],
    ) -> None:
        """Train until `stop()`, or for `steps` updates; `rest(seconds)` waits and wakes at a stop.

        `report` takes the stage's health and a sentence; call `committed` with each version that is on disk,
        which deletes weights too old to keep. Call `before_batch` before each: it does what comes first, such
        as an order to forget, waits while the store or the folder of versions is away, and returns the reason
        to fetch no batch now, or None.
        """


BATCHES = plugins.Table[BatchSource](plugins.BATCHES, BatchSource)


def run(
    settings: Settings,
    home: Path,
    *,
    forever: bool = False,
    source: str | None = None,
    steps: int | None = None,
    kind: Kind | None = None,
) -> None:
    """Train over the home's store until no turn is left, or, `forever`, until SIGINT or SIGTERM.

    With `source`, train on the batches of that installed `BatchSource` instead, for `steps` updates or until
    a signal. Once the model is in memory, the first signal lets an update that has begun finish, the second
    ends it. `kind` replaces the learner's own trainer.
    Raises NothingLearned if there was no turn to begin with, AlreadyRunning if there is another learner.
    """
    set_up(logging.INFO)
    if starts_ranks(settings):
        again = partial(run, settings, home, forever=forever, source=source, steps=steps, kind=kind)
        launch(settings.learner.processes, _rank, again, signals="SIGINT,SIGTERM")
        return
    stop = threading.Event()
    end_at_signals("stopped: nothing was trained yet")

    def stopping(number: int, _: object) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)
        print("stopping: an update that has begun is finished; Ctrl-C again ends it", file=sys.stderr)

    def loaded() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stopping)

    if source is None:
        learn(settings, home, stop=stop.is_set, loaded=loaded, forever=forever, wait=False, kind=kind)
    else:
        work = partial(_on_batches, source=source, steps=steps, stop=stop)
        _lead(settings, home, work, stop=stop.is_set, loaded=loaded, wait=False)


def _on_batches(
    settings: Settings,
    store: Store,
    trainer: Trainer,
    committed: Committed,
    *,
    source: str,
    steps: int | None,
    stop: threading.Event,
) -> None:
    """Train on the batches of an installed source, and commit each version to the store."""
    from afterwit.learning.claims import Stopped

    stage = build.learn_stage(settings, store, trainer, committed)
    stage.begin()

    def before_batch() -> str | None:
        while not stop.is_set():
            try:
                pause = stage.settle(stop.is_set)
            except (StoreUnavailable, VersionsUnavailable) as error:
                stage.health.report(False, f"{error}; no batch is fetched")
                stop.wait(settings.learner.poll_s)
            else:
                return None if pause is None else on_person(pause)
        raise Stopped

    with suppress(Stopped):
        BATCHES.loaded(source).run(
            settings,
            trainer,
            steps=steps,
            stop=stop.is_set,
            rest=stop.wait,
            report=stage.health.report,
            committed=stage.commit,
            before_batch=before_batch,
        )


def _rank(work: Callable[[], None]) -> None:
    """One of the learner's processes, if this command started several; errors are one line."""
    try:
        work()
    except AfterwitError as error:
        if os.environ["RANK"] == "0":
            print(f"afterwit: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def learn(
    settings: Settings,
    home: Path,
    *,
    stop: Callable[[], bool],
    loaded: Callable[[], None] = lambda: None,
    forever: bool,
    wait: bool,
    kind: Kind | None = None,
) -> None:
    """Run the learn stage in this process; call `loaded` when its model is in memory.

    If another learner has the home's lock: `wait` until it is free and report who holds it, or raise
    AlreadyRunning.
    Our own errors are reported as the stage's status before they are raised.
    """

    def work(own: Settings, store: Store, trainer: Trainer, committed: Committed) -> None:
        before = trainer.versions.newest()
        build.learn_stage(own, store, trainer, committed).run(stop, follow=forever, rest=time.sleep)
        if not (forever or stop()) and trainer.versions.newest() == before:
            raise NothingLearned(_why_nothing(store))

    _lead(settings, home, work, stop=stop, loaded=loaded, wait=wait, kind=kind)


def _lead(
    settings: Settings,
    home: Path,
    work: Work,
    *,
    stop: Callable[[], bool],
    loaded: Callable[[], None],
    wait: bool,
    kind: Kind | None = None,
) -> None:
    """Do the `work` as the home's only learner, the model in memory and tested. Other ranks follow the first.

    A sharded model is not tested: the tests run in one process.
    """
    with member(settings, home, Placed.of(os.environ)) as (own, folder, ranks):
        if ranks is not None and ranks.rank > 0:
            follower = build.trainer_of(own, home, folder, ranks, kind)
            loaded()
            follower.follow(ranks)
            return
        versions = build.versions_of(home, folder, own.versions)
        with closing(build.store_of_model(own, home, folder)) as store, ExitStack() as lock:
            if not _locked(lock, versions, store, stop, wait=wait):
                return
            try:
                versions.follow()
                refuse_another_home(own.store.url, store, versions)
                store.set_status(STAGE, True, "loading the model", now=time.time())
                with memory_shortage_named(folder):
                    from afterwit.chat_format.render import Renderer
                    from afterwit.doctor.finding import require
                    from afterwit.doctor.mathematics import check_mathematics

                    trainer = build.trainer_of(own, home, folder, ranks, kind)
                    if own.learner.shards == 1:
                        require(check_mathematics(trainer, Renderer.load(folder), own.judge.placement))
                loaded()
                with build.tracking(own, home) as committed:
                    work(own, store, trainer, committed)
            except NothingLearned:  # no fault of the stage
                raise
            except AfterwitError as error:
                store.set_status(STAGE, False, str(error), now=time.time())
                raise


def _locked(
    lock: ExitStack, versions: Versions, store: Store, stop: Callable[[], bool], *, wait: bool
) -> bool:
    """Take the learner's lock; False if `stop` came first."""
    reported = ""
    while not stop():
        try:
            with ExitStack() as both:
                both.enter_context(versions.learning())
                both.enter_context(store.leading())
                lock.push(both.pop_all())
                return True
        except AlreadyRunning as error:
            if not wait:  # the status is the other learner's
                raise
            if reported != (reported := f"waiting for another learner to end: {error}"):
                store.set_status(STAGE, False, reported, now=time.time())
            time.sleep(LOCK_POLL_S)
    return False


@contextmanager
def memory_shortage_named(folder: Path) -> Iterator[None]:
    """Turn any error for lack of memory into a SettingError with remedies."""
    try:
        yield
    except Exception as error:  # lack of memory has many types
        if failure_kind(error) is not FailureKind.MEMORY:
            raise
        raise SettingError(
            f"too little memory to load {folder} for learning: free some, or use a smaller model,"
            " learner.dtype = 'bfloat16' or learner.lora_rank above 0"
        ) from error


def _why_nothing(store: Store) -> str:
    """The fault, or the content of the store, which has no turn to learn from."""
    if (pause := store.paused()) is not None:
        return f"nothing was learned: {on_person(pause)}"
    reported = [status for status in store.statuses() if status.stage == STAGE]
    status = max(reported, key=lambda status: status.at)
    if not status.ok:
        return f"nothing was learned: {status.message}"
    counts = store.counts()
    states = ", ".join(f"{count} {state.value}" for state, count in counts.states.items()) or "no turns"
    reasons = ", ".join(f"{reason.value} {count}" for reason, count in counts.reasons.items())
    ended = f"; turns ended as {reasons}" if reasons else ""
    return f"nothing was learned: no judged turn was left to train; the store holds {states}{ended}"
