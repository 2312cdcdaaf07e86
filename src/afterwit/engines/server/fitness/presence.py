"""Waits until a server answers at all."""

from __future__ import annotations

import asyncio
import logging

from afterwit.core.errors import EngineUnavailable, NobodyAnswers
from afterwit.engines.server.client import ServerClient

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
