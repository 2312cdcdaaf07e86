"""Reads a request's body, and keeps long work on it away from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.types import Receive, Scope

from afterwit.gateway.context import Gateway
from afterwit.gateway.limits import parse_json, read_body
from afterwit.gateway.middleware import HEADERS

T = TypeVar("T")


READ_TIMES = 8
"""Times `thread_from_bytes`: to read a body takes much less than to render and tokenize it."""


async def read_bytes(
    gateway: Gateway, scope: Scope, receive: Receive, hold: Callable[[int], None], *, most: int | None = None
) -> bytes:
    """The body, at most `most` bytes and as many as the settings allow. Raises 408, 413, 415 and 429."""
    settings = gateway.settings
    limit = settings.max_body_bytes if most is None else min(most, settings.max_body_bytes)
    pause_s = settings.body_timeout_s
    async with gateway.in_flight.receiving():
        return await read_body(scope[HEADERS], receive, limit=limit, pause_s=pause_s, hold=hold)


async def reading(gateway: Gateway, data: bytes, work: Callable[[dict[str, Any]], T]) -> T:
    """What `work` makes of a body's JSON. Raises what it raises, and 400."""
    return await off_loop(gateway, len(data) // READ_TIMES, lambda: work(parse_json(data)))


async def off_loop(gateway: Gateway, size: int, work: Callable[[], T]) -> T:
    """What `work` returns. If it is about a long text, it runs in a thread, so that streams go on."""
    if size < gateway.settings.thread_from_bytes:
        return work()
    return await asyncio.get_running_loop().run_in_executor(gateway.readers, work)
