"""The learner's process: started, watched, started again. Its death never stops serving."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from afterwit.config import Settings
from afterwit.errors import AfterwitError, RankLost
from afterwit.parent import end_with, is_gone
from afterwit.running.ranks import KILLED, launch, starts_ranks
from afterwit.worker import WORKING, BackOff, Report

REFUSED = 3
"""Exit code of a learner that could not start and has reported why in its status."""
LOST = 4
"""Exit code of a learner of several processes that lost one."""
STEADY_S = 60.0
"""A process that lived this long was healthy: the next pause is the shortest again."""
LONGEST_PAUSE_S = 10.0
"""After a kill: loading included, a learner is back within a minute, however often it is killed."""
LONGEST_PAUSE_REFUSED_S = 300.0
"""A learner that cannot start only takes memory and cores from serving: a person has to do something."""
BEAT_S = 1.0
"""The shortest time between two heartbeats."""
LOOK_S = 5.0
"""How often the parent reads heartbeats."""

log = logging.getLogger(__name__)


async def keep_alive(
    settings: Settings, home: Path, *, pause_s: float, stop_s: float, report: Report
) -> None:
    """Run the learner's process until cancelled; restart it after growing pauses, and `report` each death."""
    loop, deaths = asyncio.get_running_loop(), 0

    async def tell(ok: bool, message: str) -> None:
        log.warning("learn: %s", message)
        try:
            await report(ok, message)
        except AfterwitError as error:  # learning goes on without a status
            log.warning("learn: its status cannot be stored: %s", error)

    while True:
        started = loop.time()
        try:
            code = await _life(settings, home, stop_s, tell)
            cause = None if code == REFUSED else _cause(code)
        except OSError as error:  # out of processes or memory, for now
            cause = f"cannot be started: {error}"
        deaths = 1 if loop.time() - started > STEADY_S else deaths + 1
        longest_s = max(pause_s, LONGEST_PAUSE_REFUSED_S if cause is None else LONGEST_PAUSE_S)
        wait_s = BackOff(base_s=pause_s, max_s=longest_s).after(deaths)
        if cause is not None:
            await tell(False, f"the learner {cause}; it starts again in {wait_s:.0f} s")
        await asyncio.sleep(wait_s)


async def _life(settings: Settings, home: Path, stop_s: float, tell: Report) -> int | None:
    """Start the process and wait until it ends; if cancelled, end it. Returns its exit code."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    with receiving, sending:
        process = _start(settings, home, sending)
        loop.add_reader(process.sentinel, over.set)
        watching = asyncio.create_task(_watch(receiving, process, settings.learner.patience_s, tell))
        if starts_ranks(settings):
            watching.cancel()  # they watch each other
        try:
            await over.wait()
        finally:
            loop.remove_reader(process.sentinel)
            watching.cancel()
            await asyncio.to_thread(_end, process, None if over.is_set() else stop_s)
    return process.exitcode


async def _watch(heartbeats: Connection, process: BaseProcess, patience_s: float, tell: Report) -> None:
    """Report when no heartbeat has come for `patience_s` seconds, and when they come again."""
    newest, silent = time.monotonic(), False
    while True:
        await asyncio.sleep(min(LOOK_S, patience_s))
        with suppress(OSError, EOFError):
            while heartbeats.poll():
                heartbeats.recv_bytes()
                newest = time.monotonic()
        if (time.monotonic() - newest > patience_s) != silent:
            silent = not silent
            hangs = (
                f"the learner has reported nothing for {patience_s:g} s (learner.patience_s): it hangs, or "
                f"one pass takes longer. Turns wait meanwhile; `kill -9 {process.pid}` restarts it"
            )
            await tell(not silent, hangs if silent else WORKING)


def _end(process: BaseProcess, stop_s: float | None) -> None:
    """Wait for a process that has ended; or have it end within `stop_s` seconds."""
    if stop_s is not None:
        process.terminate()
        process.join(stop_s)
        if process.is_alive():
            process.kill()
    process.join()


def _start(settings: Settings, home: Path, heartbeats: Connection | None = None) -> BaseProcess:
    process = multiprocessing.get_context("spawn").Process(
        target=_learn,
        args=(settings, home, logging.getLogger().getEffectiveLevel(), os.getpid(), heartbeats),
        name="afterwit-learner",
        daemon=settings.learner.processes == 1,  # a daemon may start no processes
    )
    resource_tracker.ensure_running()  # else `start` starts it, and unblocks what is blocked
    mask = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT}
    )  # the child never reads the parent's Ctrl-C
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return process


def _cause(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "was killed (out of memory, or by hand)"
    if code == KILLED + signal.SIGKILL:
        return "lost a process that was killed (out of memory, or by hand)"
    if code == LOST:
        return "lost a process: it died, or was silent for learner.patience_s (see the log)"
    if code is not None and code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"ended with code {code} (see the log)"


def _learn(
    settings: Settings, home: Path, log_level: int, parent: int, heartbeats: Connection | None = None
) -> None:
    """The process. Until the model is in memory SIGTERM ends it at once; after that, an update ends first.

    The work itself sends the heartbeats, often: a thread would go on while the work hangs.
    """
    end_with(parent)
    from afterwit.running.logs import set_up
    from afterwit.running.train import learn

    set_up(log_level)
    if starts_ranks(settings):
        launch(settings.learner.processes, _rank, settings, home, log_level, signals="SIGTERM")
        return
    stopped, beaten = threading.Event(), 0.0

    def loaded() -> None:
        signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    def stop() -> bool:
        nonlocal beaten
        if heartbeats is not None and time.monotonic() - beaten >= BEAT_S:
            beaten = time.monotonic()
            with suppress(OSError):  # a parent that is gone needs no heartbeat
                heartbeats.send_bytes(b".")
        return stopped.is_set() or is_gone(parent)

    try:
        learn(settings, home, stop=stop, loaded=loaded, forever=True, wait=True)
    except AfterwitError as error:
        log.warning("learn: %s", error)
        raise SystemExit(LOST if isinstance(error, RankLost) else REFUSED) from error


def _rank(settings: Settings, home: Path, log_level: int) -> None:
    """One of several processes of the learner; its parent started them."""
    _learn(settings, home, log_level, os.getppid())
