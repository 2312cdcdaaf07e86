"""`afterwit serve` as a program: starts the stages, says where it listens, stops cleanly."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop
from rich.console import Console
from rich.status import Status
from rich.text import Text

from afterwit.apps.config import Settings
from afterwit.apps.running.collector import spare_what_stays
from afterwit.apps.running.engine_process import EngineProcess
from afterwit.apps.running.logs import log_plainly
from afterwit.apps.running.runtime import Runtime
from afterwit.engines.server.settings import ServerSettings

WIDTH = 100
"""Characters of the server's last words that are shown while it loads."""


def run(
    settings: Settings, home: Path, stages: tuple[str, ...], *, server: EngineProcess | None = None
) -> None:
    """Run the stages until SIGINT or SIGTERM, in front of `server` if there is one of our own.

    A second signal stops at once.
    """
    log_plainly()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, home, stages, server))


async def _serve(
    settings: Settings, home: Path, stages: tuple[str, ...], server: EngineProcess | None
) -> None:
    console = Console(stderr=True)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _stopping, stop, number)
    async with AsyncExitStack() as stack:
        if server is not None:
            stack.push_async_callback(server.stop)
            if not await _started(server, settings, console, stop):
                return
        with console.status("loading the model"):
            runtime = await stack.enter_async_context(Runtime(settings, home, stages))
        spare_what_stays()
        _greet(console, runtime, home)
        await stop.wait()
        console.print("stopping: running answers finish first")


async def _started(server: EngineProcess, settings: Settings, console: Console, stop: asyncio.Event) -> bool:
    """Whether the server answers; False if it was told to stop first."""
    assert isinstance(settings.engine, ServerSettings)
    with console.status("starting the engine's server") as status:
        console.print(f"the engine's server writes its log to {server.log}", highlight=False)
        start = asyncio.create_task(
            server.start(within_s=settings.engine.start_s, progress=lambda words: _show(status, words))
        )
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait((start, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if start.done():
            start.result()
            return True
        start.cancel()
        return False


def _show(status: Status, words: str) -> None:
    status.update(Text(f"starting the engine's server: {words[-WIDTH:]}"))


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
    console.print(
        f"point an agent at [bold]{runtime.url}[/bold], model name afterwit; home {home}", soft_wrap=True
    )
