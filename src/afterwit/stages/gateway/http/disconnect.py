"""Work that ends when its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import Receive


async def until_disconnect(work: Awaitable[None], receive: Receive, *, finished: Callable[[], bool]) -> bool:
    """Run the work; whether its client stayed. If it leaves before the work is `finished`, cancel it."""
    running = asyncio.current_task()
    assert running is not None, "a coroutine runs in a task"
    left = False

    async def watch() -> None:
        nonlocal left
        while (await receive())["type"] != "http.disconnect":
            pass
        if not finished():
            left = True
            running.cancel()

    watching = asyncio.ensure_future(watch())
    try:
        await work
    except asyncio.CancelledError:
        if not left:
            raise
        running.uncancel()
    finally:
        watching.cancel()
    return not left
