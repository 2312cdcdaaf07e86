"""Reads a request's body, and keeps long work on it away from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.types import Receive, Scope

from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.http import read_json
from afterwit.stages.gateway.middleware import HEADERS
from afterwit.wire.request import ModelRequest

T = TypeVar("T")


async def read_body(gateway: Gateway, scope: Scope, receive: Receive) -> tuple[dict[str, Any], int]:
    """The body as a JSON object, and its size in bytes. Raises 400, 408, 413 and 415."""
    settings = gateway.settings
    return await read_json(
        scope[HEADERS], receive, limit=settings.max_body_bytes, pause_s=settings.body_timeout_s
    )


async def off_loop(gateway: Gateway, asked: ModelRequest, size: int, work: Callable[[], T]) -> T:
    """What `work` returns. For a long request it runs in a thread, so that streams go on.

    `size` is the body's, in bytes. A short body may refer to a long conversation.
    """
    if max(size, asked.conversation.characters) >= gateway.settings.thread_from_bytes:
        return await asyncio.to_thread(work)
    return work()
