"""The processes of one learner: started on this machine, or by torchrun."""

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
from afterwit.learning.distributed import Placed
from afterwit.parent import end_with, is_gone

if TYPE_CHECKING:
    from afterwit.learning.distributed.group import Group

GONE = 5
"""Exit code of a process whose launcher died; no one reads it."""
KILLED = 128
"""Added to the signal that ended a process, as shells do."""
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"

log = logging.getLogger(__name__)


def starts_ranks(settings: Settings) -> bool:
    """Whether this process must start the learner's: there are several, and this is not one."""
    learner = settings.learner
    if Placed.of(os.environ) is not None:
        return False
    if learner.processes == 1 and learner.shards > 1:
        raise SettingError(
            f"learner.shards is {learner.shards}, but learner.processes 1: it must be a multiple of that"
        )
    return learner.processes > 1


def launch(processes: int, work: Callable[..., None], *args: object, signals: str) -> None:
    """Run `work(*args)` in this number of processes, by torchrun's launcher. Returns when all have returned,
    or after one of `signals`, which all get.

    If one fails, all are ended: SystemExit with its code, or with 128 plus its signal.
    """
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for name in list(logging.root.manager.loggerDict):  # a process that fails has logged why itself
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)  # they communicate on this machine alone
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id="afterwit-learner",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        signals_to_handle=signals,
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),  # else each launch leaves an empty folder
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
    """One process: it works, and no longer than the launcher lives.

    Once this returns, the process waits until all others have returned too. A launcher that sent a signal
    waits half a minute for the process to end, so it ends here. The pipe holds a byte if a signal with a
    handler came, whichever handler it was.
    """
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        end_with(launcher)
        work(*args)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if is_gone(launcher):
            os._exit(GONE)
        signal.set_wakeup_fd(before)
        os.close(write)
    with open(read, "rb") as received:
        if received.read(1):
            raise SystemExit(KILLED + signal.SIGTERM)  # the launcher takes 0 for a return


@contextmanager
def member(
    settings: Settings, home: Path, placed: Placed | None
) -> Iterator[tuple[Settings, Path, Group | None]]:
    """This process as one of the learner's: its settings, the model's folder, and the group; None: no group.

    SettingError in every process if there are too many, or if a machine has another model or other settings.
    """
    if placed is None:
        yield settings, model_folder(settings.model, home), None
        return
    from afterwit.chat_format.render import tokenizer_hash
    from afterwit.engines.model_files import fingerprint
    from afterwit.learning.distributed.group import agreed, joined, placed_settings

    learner = placed_settings(settings.learner, placed)
    with joined(learner) as group:
        with group.together():
            folder = model_folder(settings.model, home)
        agreed(
            group,
            learner,
            lambda: {"the tokenizer": tokenizer_hash(folder), "the base model": fingerprint(folder)},
        )
        yield settings.model_copy(update={"learner": learner}), folder, group


def refuse_torchrun() -> None:
    """SettingError if torchrun started this: it is for the learner's processes alone."""
    if (placed := Placed.of(os.environ)) is not None:
        raise SettingError(
            f"torchrun started {placed.size} processes, and each would serve: run `afterwit serve --stages"
            " gateway,judge` by itself, and `afterwit train --follow` under torchrun"
        )
