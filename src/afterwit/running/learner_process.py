"""The learner's process: started, watched, started again. Its death never stops serving."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from afterwit.config import Settings
from afterwit.errors import AfterwitError, RankLost
from afterwit.running.parent import end_with, is_gone
from afterwit.running.ranks import KILLED, launch, starts_ranks
from afterwit.worker import WORKING, Report

REFUSED = 3
"""Exit code of a learner that could not start and has said why in its status."""


LOST = 4
"""Exit code of a learner of several processes that lost one."""


STEADY_S = 60.0
"""A process that lived this long was healthy: the next pause is the shortest again."""


LONGEST_PAUSE_S = 10.0
"""Of one that was killed: loading included, it is back within a minute, however often it is."""


LONGEST_PAUSE_REFUSED_S = 300.0
"""One that cannot start only takes memory and cores from what serves: a person has to do something."""


log = logging.getLogger(__name__)


async def keep_alive(
    settings: Settings, home: Path, *, pause_s: float, stop_s: float, report: Report
) -> None:
    """Run the learner's process until cancelled; restart it after growing pauses, and `report` each death."""
    loop = asyncio.get_running_loop()
    deaths = 0
    while True:
        started = loop.time()
        try:
            code = await _life(settings, home, stop_s, report)
            cause = None if code == REFUSED else _cause(code)
        except OSError as error:  # no process or no memory is left, for now
            cause = f"cannot be started: {error}"
        deaths = 1 if loop.time() - started > STEADY_S else deaths + 1
        wait_s = pause(deaths, pause_s, LONGEST_PAUSE_REFUSED_S if cause is None else LONGEST_PAUSE_S)
        if cause is not None:
            await _say(report, False, f"the learner {cause}; it starts again in {wait_s:.0f} s")
        await asyncio.sleep(wait_s)


async def _life(settings: Settings, home: Path, stop_s: float, report: Report) -> int | None:
    """Start the process and wait until it ends; if cancelled, end it. Returns its exit code."""
    with signs() as (pipe, taker):
        process = _start(settings, home, pipe)

        async def told(silent: bool) -> None:
            await _say(report, not silent, _silent(settings, process) if silent else WORKING)

        watching = asyncio.create_task(taker.watch(settings.learner.patience_s, told))
        if starts_ranks(settings):
            watching.cancel()  # they watch each other
        try:
            await _ended(process)
        finally:
            watching.cancel()
            if process.is_alive():
                await asyncio.to_thread(_stop, process, stop_s)
    return process.exitcode


def _silent(settings: Settings, process: BaseProcess) -> str:
    patience_s = settings.learner.patience_s
    return (
        f"the learner has given no sign for {patience_s:g} s (learner.patience_s): it hangs, or one pass "
        f"takes longer. Turns wait meanwhile; `kill -9 {process.pid}` has it started again"
    )


def pause(deaths: int, first_s: float, longest_s: float = LONGEST_PAUSE_S) -> float:
    """Seconds before the process is started again after its n-th death in a row: doubling, bounded."""
    return min(first_s * 2.0 ** min(deaths - 1, 30), max(first_s, longest_s))


async def _say(report: Report, ok: bool, words: str) -> None:
    log.warning("learn: %s", words)
    try:
        await report(ok, words)
    except AfterwitError as error:  # learning goes on without a status
        log.warning("learn: its status cannot be stored: %s", error)


def _start(settings: Settings, home: Path, pipe: Connection | None = None) -> BaseProcess:
    context = multiprocessing.get_context("spawn")
    level = logging.getLogger().getEffectiveLevel()
    process = context.Process(
        target=_learn,
        args=(settings, home, level, os.getpid(), pipe),
        name="afterwit-learner",
        daemon=settings.learner.processes == 1,  # a daemon may start no processes
    )
    process.start()
    return process


async def _ended(process: BaseProcess) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(process.sentinel, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(process.sentinel)
    await asyncio.to_thread(process.join)


def _stop(process: BaseProcess, stop_s: float) -> None:
    process.terminate()
    process.join(stop_s)
    if process.is_alive():
        process.kill()
        process.join()


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
    settings: Settings, home: Path, log_level: int, parent: int, pipe: Connection | None = None
) -> None:
    """What the process does. Until the model is in memory SIGTERM ends it at once; then it first finishes."""
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is for the parent
    from afterwit.running.logs import set_up
    from afterwit.running.train import learn

    set_up(log_level)
    if starts_ranks(settings):
        launch(settings.learner.processes, _rank, settings, home, log_level, signals="SIGTERM")
        return
    told = threading.Event()

    def loaded() -> None:
        signal.signal(signal.SIGTERM, lambda *_: told.set())

    giver = None if pipe is None else Giver(pipe)

    def stop() -> bool:
        if giver is not None:
            giver.give()
        return told.is_set() or is_gone(parent)

    try:
        learn(settings, home, stop=stop, loaded=loaded, forever=True, wait=True)
    except RankLost as error:
        log.warning("learn: %s", error)
        raise SystemExit(LOST) from error
    except AfterwitError as error:
        log.warning("learn: %s", error)
        raise SystemExit(REFUSED) from error


def _rank(settings: Settings, home: Path, log_level: int) -> None:
    """What each of the learner's processes does, if there are several; its parent started them."""
    _learn(settings, home, log_level, os.getppid())


EACH_S = 1.0
"""Signs are this far apart at least."""


LOOK_S = 5.0
"""How often the parent looks whether signs came."""


class Giver:
    """The child's end. It never fails and never waits long: a parent that is gone needs no signs."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._given = pipe, 0.0

    def give(self) -> None:
        """Call it often, from the work itself: a thread beside it would go on while the work hangs."""
        if time.monotonic() - self._given < EACH_S:
            return
        self._given = time.monotonic()
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(b".")


class Taker:
    """The parent's end."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.newest = time.monotonic()
        """When the newest sign came; at first, when the child was started."""

    def take(self) -> None:
        """Read what is there."""
        with contextlib.suppress(OSError, EOFError):
            while self._pipe.poll():
                self._pipe.recv_bytes()
                self.newest = time.monotonic()

    async def watch(self, silent_s: float, told: Callable[[bool], Awaitable[None]]) -> None:
        """Say True when no sign has come for `silent_s` seconds, and False when they come again."""
        silent = False
        while True:
            await asyncio.sleep(min(LOOK_S, silent_s))
            self.take()
            if (time.monotonic() - self.newest > silent_s) != silent:
                silent = not silent
                await told(silent)


@contextmanager
def signs() -> Iterator[tuple[Connection, Taker]]:
    """The end that the child is given, and the parent's. Both are closed behind it."""
    parents, childs = multiprocessing.Pipe(duplex=False)
    with parents, childs:
        yield childs, Taker(parents)
