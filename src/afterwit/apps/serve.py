"""`afterwit serve` as a program: starts the stages, says where it listens, stops cleanly."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import uvloop
from rich.console import Console

from afterwit.apps.config import Settings
from afterwit.apps.logs import log_plainly
from afterwit.apps.runtime import Runtime


def run(settings: Settings, home: Path, stages: tuple[str, ...]) -> None:
    """Run the stages until SIGINT or SIGTERM; a second signal stops at once."""
    log_plainly()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, home, stages))


async def _serve(settings: Settings, home: Path, stages: tuple[str, ...]) -> None:
    console = Console(stderr=True)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _stopping, stop, number)
    with console.status("loading the model"):
        runtime = Runtime(settings, home, stages)
        await runtime.__aenter__()
    try:
        _greet(console, runtime, home)
        await stop.wait()
        console.print("stopping: running answers finish first")
    finally:
        await runtime.__aexit__(None, None, None)


def _stopping(stop: asyncio.Event, number: int) -> None:
    if stop.is_set():
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    stop.set()


def _greet(console: Console, runtime: Runtime, home: Path) -> None:
    for stage, why in runtime.off.items():
        console.print(f"{stage}: {why}", highlight=False)
    if runtime.url is None or runtime.engine is None:
        console.print(f"running {', '.join(runtime.stages)} over {home}")
        return
    console.print(f"serving [bold]{runtime.engine.facts.model}[/bold], version {runtime.engine.version}")
    console.print(f"point an agent at [bold]{runtime.url}[/bold], model name afterwit; home {home}")
