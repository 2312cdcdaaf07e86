"""Waits until a server answers at all."""

from __future__ import annotations

import asyncio
import logging

from afterwit.core.errors import EngineUnavailable, NobodyAnswers
from afterwit.engines.server.client import ServerClient

LOOK_AGAIN_S = 1.0

log = logging.getLogger(__name__)


async def answered(client: ServerClient, path: str, *, called: str, patience_s: float) -> None:
    """Return when a GET of `path` is answered. NobodyAnswers if no server does so within `patience_s`
    seconds.

    `called`: what kind of server it should be, for people. The log says once that it is waited for.
    """
    now = asyncio.get_running_loop().time
    until = now() + patience_s
    told = False
    while True:
        try:
            await client.get(path, within_s=max(until - now(), 0.001))
            return
        except EngineUnavailable as error:
            if (left := until - now()) <= 0:
                raise NobodyAnswers(
                    f"no {called} server answered at {client.url} within {patience_s:g} s ({error}): start "
                    "it, let `afterwit up` start one, or correct engine.url"
                ) from error
            if not told:
                log.info("waiting up to %g s for a %s server: %s", patience_s, called, error)
            told = True
            await asyncio.sleep(min(LOOK_AGAIN_S, left))
