"""`afterwit serve` as a program: starts the stages, says where it listens, stops cleanly."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import uvloop
from rich.console import Console
from rich.status import Status
from rich.text import Text

from afterwit.apps.config import Settings
from afterwit.apps.printing.terminal import Terminal
from afterwit.apps.running.collector import spare_what_stays
from afterwit.apps.running.engine_process import EngineProcess
from afterwit.apps.running.logs import log_plainly
from afterwit.apps.running.runtime import Runtime
from afterwit.engines.server.settings import ServerSettings

JUDGE_WITHIN_S = 3.0
"""Seconds that the first lines wait for what is known of the judge."""


def run(
    settings: Settings, home: Path, stages: tuple[str, ...], *, servers: Sequence[EngineProcess] = ()
) -> None:
    """Run the stages until SIGINT or SIGTERM, beside `servers` of our own.

    A second signal stops at once.
    """
    log_plainly()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, home, stages, servers))


async def _serve(
    settings: Settings, home: Path, stages: tuple[str, ...], servers: Sequence[EngineProcess]
) -> None:
    console = Terminal(stderr=True)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _stopping, stop, number)
    async with AsyncExitStack() as stack:
        if servers:
            stack.push_async_callback(_stop_all, servers)
            if not await _started(servers, settings, console, stop):
                return
        with console.status("loading the model"):
            gone = partial(_gone, servers)
            runtime = await stack.enter_async_context(Runtime(settings, home, stages, servers=gone))
        spare_what_stays()
        await _judge_first(console, runtime, stack)
        greet(console, runtime, home)
        await stop.wait()
        console.print("stopping: running answers finish first")


async def _judge_first(console: Console, runtime: Runtime, stack: AsyncExitStack) -> None:
    """Say what is wrong with the judge: before all else if it is known soon, else when it is known."""
    if runtime.examiner is None:
        return
    told = asyncio.create_task(runtime.examiner.told())
    stack.callback(told.cancel)
    done, _ = await asyncio.wait({told}, timeout=JUDGE_WITHIN_S)
    if done:
        _say_fault(console, told)
    else:
        console.print("judge: it is being asked three questions with known answers; the result follows")
        told.add_done_callback(partial(_say_fault, console))


def _say_fault(console: Console, told: asyncio.Task[str | None]) -> None:
    if not told.cancelled() and (fault := told.result()) is not None:
        console.print(Text(fault, style="bold red"), soft_wrap=True)


async def _started(
    servers: Sequence[EngineProcess], settings: Settings, console: Console, stop: asyncio.Event
) -> bool:
    """Whether all servers answer; False if they were told to stop first. Raises the first error of any."""
    assert isinstance(settings.engine, ServerSettings)
    within_s = settings.engine.start_s
    with console.status("starting the servers") as status:
        for server in servers:
            console.print(f"the {server.name} server writes its log to {server.log}")
        stopped = asyncio.create_task(stop.wait())
        steps: dict[str, str] = {}
        left = {
            asyncio.create_task(
                each.start(within_s=within_s, progress=partial(_show, status, steps, each.name))
            )
            for each in servers
        }
        try:
            while left and not stopped.done():
                done, _ = await asyncio.wait({stopped, *left}, return_when=asyncio.FIRST_COMPLETED)
                for task in done & left:
                    task.result()
                left -= done
            return not left
        finally:
            for task in (stopped, *left):
                task.cancel()
            await asyncio.gather(stopped, *left, return_exceptions=True)


async def _stop_all(servers: Sequence[EngineProcess]) -> None:
    await asyncio.gather(*(server.stop() for server in servers))


def _gone(servers: Sequence[EngineProcess]) -> dict[str, str]:
    return {each.name: each.trouble for each in servers if each.trouble is not None}


def _show(status: Status, steps: dict[str, str], name: str, step: str) -> None:
    """How far each server is, in one line."""
    steps[name] = step
    status.update(Text("; ".join(f"{name} server: {step}" for name, step in steps.items())))


def _stopping(stop: asyncio.Event, number: int) -> None:
    if stop.is_set():
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    stop.set()


def greet(console: Console, runtime: Runtime, home: Path) -> None:
    """Say what is served, and where."""
    for stage, why in runtime.off.items():
        console.print(f"{stage}: {why}")
    if runtime.url is None or runtime.engine is None:
        console.print(f"running {', '.join(runtime.stages)} over {home}")
        return
    model, version = runtime.engine.facts.model, runtime.engine.version
    console.print(Text.assemble("serving ", (model, "bold"), f", version {version}"))
    where = Text.assemble("point an agent at ", (runtime.url, "bold"), f", model name afterwit; home {home}")
    console.print(where, soft_wrap=True)
