"""`afterwit serve` as a program: start the loop, say where it is, stop cleanly."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import uvloop
from rich.console import Console

from afterwit.apps.config import Settings
from afterwit.apps.logs import log_plainly
from afterwit.apps.runtime import Loop


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
        loop = Loop(settings, home, stages)
        await loop.__aenter__()
    try:
        _greet(console, loop, home, stages)
        await stop.wait()
        console.print("stopping: running answers finish first")
    finally:
        await loop.__aexit__(None, None, None)


def _stopping(stop: asyncio.Event, number: int) -> None:
    if stop.is_set():
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    stop.set()


def _greet(console: Console, loop: Loop, home: Path, stages: tuple[str, ...]) -> None:
    if loop.url is None:
        console.print(f"running {', '.join(stages)} over {home}")
        return
    assert loop.engine is not None
    console.print(f"serving [bold]{loop.engine.facts.model}[/bold], version {loop.engine.version}")
    console.print(f"point an agent at [bold]{loop.url}[/bold], model name afterwit; home {home}")
