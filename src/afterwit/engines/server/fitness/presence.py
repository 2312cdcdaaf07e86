"""Waits until a server answers at all, and finds out whether one that failed is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from afterwit.core.errors import AfterwitError, EngineError, EngineUnavailable, NobodyAnswers
from afterwit.engines.server.client import ServerClient, ServerFailed

DEAD = "EngineCore encountered an issue"
"""What vLLM answers once its engine has died."""
LOOK_AGAIN_S = LEAST_TRY_S = 1.0

log = logging.getLogger(__name__)


async def answered(client: ServerClient, path: str, *, called: str, patience_s: float) -> None:
    """Return when a GET of `path` is answered. NobodyAnswers if no server does so within `patience_s`
    seconds.

    `called`: what kind of server it should be, for people. The log says once that it is waited for. Each
    try has at least `LEAST_TRY_S`: one that is cut off sooner would hide why the one before it failed.
    """
    now = asyncio.get_running_loop().time
    until = now() + patience_s
    told = False
    while True:
        try:
            await client.get(path, within_s=max(until - now(), LEAST_TRY_S))
            return
        except EngineUnavailable as error:
            if until - now() <= LOOK_AGAIN_S:
                raise NobodyAnswers(
                    f"no {called} server answered at {client.url} within {patience_s:g} s ({error}): start "
                    "it, let `afterwit up` start one, or correct engine.url"
                ) from error
            if not told:
                log.info("waiting up to %g s for a %s server: %s", patience_s, called, error)
            told = True
            await asyncio.sleep(LOOK_AGAIN_S)


async def gone(error: EngineError, check: Callable[[], Awaitable[object]]) -> EngineUnavailable | None:
    """That a server cannot serve after a fault of its own; None if it can, or if the fault was ours.

    The process that answers outlives the one that computes by a few seconds. `check` raises if it is not fit.
    """
    if not any(isinstance(each, ServerFailed) for each in (error, error.__cause__)):
        return None
    if DEAD in str(error):
        return EngineUnavailable(f"the server's engine died: {error}")
    try:
        await check()
    except AfterwitError as found:
        return EngineUnavailable(f"{error}; then {found}")
    return None
