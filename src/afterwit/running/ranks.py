"""The processes of one learner: started on this machine, or found to be among those that torchrun started."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from afterwit.config import Settings
from afterwit.errors import SettingError
from afterwit.home.model import model_folder
from afterwit.learning.distributed.placed import Placed
from afterwit.running.parent import end_with, is_gone

if TYPE_CHECKING:
    from afterwit.learning.distributed.group import Group

GONE = 5
"""Exit code of a process whose launcher died; nobody reads it."""


KILLED = 128
"""Added to the signal that ended a process, as shells do."""


RUN = "afterwit-learner"


LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


log = logging.getLogger(__name__)


def starts_ranks(settings: Settings) -> bool:
    """Whether this process has to start the learner's: there are several, and it is none of them."""
    learner = settings.learner
    if Placed.of(os.environ) is not None:
        return False
    if learner.processes == 1 and learner.shards > 1:
        raise SettingError(
            f"learner.shards is {learner.shards}, but learner.processes 1: it must be a multiple of that"
        )
    return learner.processes > 1


def launch(processes: int, work: Callable[..., None], *args: object, signals: str) -> None:
    """Run `work(*args)` in this number of processes, by torchrun's launcher. Returns when they end well, or
    when one of `signals` came, which all of them get.

    If one ends otherwise, all are ended: SystemExit with its code, or 128 and its signal.
    """
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _silence_launcher()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)  # they talk on this machine alone
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=RUN,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        signals_to_handle=signals,
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),  # else each launch leaves an empty folder in /tmp
    )
    try:
        elastic_launch(config, _rank)(os.getpid(), work, *args)
    except SignalException:
        return
    except ChildFailedError as error:
        rank, failure = next(iter(error.failures.items()))
        code = KILLED - failure.exitcode if failure.exitcode < 0 else failure.exitcode
        log.info("learn: process %d of %d ended with code %d", rank, processes, code)
        raise SystemExit(code) from None


def _rank(launcher: int, work: Callable[..., None], *args: object) -> None:
    """What each process does: the work, and no longer than the launcher lives.

    Once this returns, the process waits until all others have returned too, deaf to all but signals. A
    launcher that sent one waits for the end of the process, for half a minute: so it ends here then.
    """
    with _signals_heard() as heard:
        try:
            end_with(launcher)
            work(*args)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if is_gone(launcher):
                os._exit(GONE)
        if heard():
            raise SystemExit(KILLED + signal.SIGTERM)  # the launcher takes 0 for a return


@contextmanager
def _signals_heard() -> Iterator[Callable[[], bool]]:
    """Whether any signal came since then that this program handles, whoever handled it."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def heard() -> bool:
        try:
            return bool(os.read(read, 1))
        except BlockingIOError:
            return False

    try:
        yield heard
    finally:
        signal.set_wakeup_fd(before)
        os.close(read)
        os.close(write)


def _silence_launcher() -> None:
    """What the launcher says of a process that failed, that process has said itself."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def crew(settings: Settings, home: Path, placed: Placed) -> Iterator[tuple[Settings, Path, Group]]:
    """This process among the learner's: its settings, its folder of the model, and the group.

    SettingError, in all of them, if so many do not fit, or if a machine has another model or other settings.
    """
    from afterwit.chat_format.render import tokenizer_hash
    from afterwit.engines.fingerprint import fingerprint
    from afterwit.learning.distributed.joining import Facts, agreed, joined, placed_settings

    learner = placed_settings(settings.learner, placed)
    with joined(learner) as group:
        with group.together():
            folder = model_folder(settings.model, home)
        agreed(
            group,
            lambda: Facts.of(tokenizer=tokenizer_hash(folder), base=fingerprint(folder), settings=learner),
        )
        yield settings.model_copy(update={"learner": learner}), folder, group


def refuse_torchrun() -> None:
    """SettingError if torchrun started this: it is for the learner's processes alone."""
    if (placed := Placed.of(os.environ)) is not None:
        raise SettingError(
            f"torchrun started {placed.size} processes, and each would serve: run `afterwit serve --stages"
            " gateway,judge` by itself, and `afterwit train --follow` under torchrun"
        )
