"""The learner's process: started, watched and started again, so that its death never takes serving down."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from afterwit.apps.config import Settings
from afterwit.core.errors import AfterwitError

LONGEST_PAUSE_S = 300.0
REFUSED = 3
"""Exit code of a learner that could not start and has said why in its status."""
STEADY_S = 60.0
"""A child that lived this long was healthy: the next pause is the shortest again."""
log = logging.getLogger(__name__)

Report = Callable[[bool, str], Any]


async def keep_alive(
    settings: Settings, home: Path, *, pause_s: float, stop_s: float, report: Report
) -> None:
    """Run the learner until cancelled; restart it with growing pauses, and say so through `report`."""
    loop = asyncio.get_running_loop()
    wait_s = pause_s
    while True:
        child = _start(settings, home)
        started = loop.time()
        try:
            await _ended(child)
        finally:
            if child.is_alive():
                await asyncio.to_thread(_stop, child, stop_s)
        wait_s = pause_s if loop.time() - started > STEADY_S else min(2 * wait_s, LONGEST_PAUSE_S)
        if child.exitcode != REFUSED:
            await _say(report, f"the learner {_cause(child.exitcode)}; it starts again in {wait_s:.0f} s")
        await asyncio.sleep(wait_s)


async def _say(report: Report, words: str) -> None:
    log.warning("learn: %s", words)
    try:
        await report(False, words)
    except AfterwitError as error:  # a store that takes no status is no reason to stop learning
        log.warning("learn: its status cannot be stored: %s", error)


def _start(settings: Settings, home: Path) -> BaseProcess:
    context = multiprocessing.get_context("spawn")
    level = logging.getLogger().getEffectiveLevel()
    child = context.Process(target=_learn, args=(settings, home, level), name="afterwit-learner", daemon=True)
    child.start()
    return child


async def _ended(child: BaseProcess) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(child.sentinel, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(child.sentinel)
    await asyncio.to_thread(child.join)


def _stop(child: BaseProcess, stop_s: float) -> None:
    child.terminate()
    child.join(stop_s)
    if child.is_alive():
        child.kill()
        child.join()


def _cause(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return "was killed (out of memory, or by hand)"
    if code is not None and code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"ended with code {code} (see the log)"


def _learn(settings: Settings, home: Path, log_level: int) -> None:
    from afterwit.apps.logs import set_up
    from afterwit.apps.train import learn

    set_up(log_level)
    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    parent = os.getppid()
    try:
        learn(settings, home, stop=lambda: stop.is_set() or os.getppid() != parent, forever=True)
    except AfterwitError as error:
        log.warning("learn: %s", error)
        raise SystemExit(REFUSED) from error
