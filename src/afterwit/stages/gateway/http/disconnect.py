"""Work that ends when its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import Receive

AFTER_S = 0.02
"""Seconds before a client is watched: most work that ends sooner need not be watched at all."""


async def until_disconnect(work: Awaitable[None], receive: Receive, *, finished: Callable[[], bool]) -> bool:
    """Run the work; whether its client stayed. If it leaves before the work is `finished`, cancel it.

    A client that leaves in the first `AFTER_S` seconds is noticed behind them.
    """
    running, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert running is not None, "a coroutine runs in a task"
    left = False
    watching: asyncio.Task[None] | None = None

    async def watch() -> None:
        nonlocal left
        while (await receive())["type"] != "http.disconnect":
            pass
        if not finished():
            left = True
            running.cancel()

    def begin() -> None:
        nonlocal watching
        watching = loop.create_task(watch())

    waiting = loop.call_later(AFTER_S, begin)
    try:
        await work
    except asyncio.CancelledError:
        if not left:
            raise
        running.uncancel()
    finally:
        waiting.cancel()
        if watching is not None:
            watching.cancel()
    return not left
