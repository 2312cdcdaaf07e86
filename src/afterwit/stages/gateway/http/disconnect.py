"""Work that ends when its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from starlette.types import Receive


async def until_disconnect(work: Awaitable[None], receive: Receive, *, finished: Callable[[], bool]) -> bool:
    """Run the work; whether its client stayed. If it leaves before the work is `finished`, cancel it."""
    task = asyncio.ensure_future(work)
    left = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if task.done() or finished():
            await task
            return True
        return False
    finally:
        await _cancelled(left)
        await _cancelled(task)


async def _disconnected(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancelled(task: asyncio.Future[None]) -> None:
    """Cancel a task that is not done, and wait for its end."""
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
