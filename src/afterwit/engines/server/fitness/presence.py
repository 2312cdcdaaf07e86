"""Waits until a server answers at all."""

from __future__ import annotations

import asyncio

from afterwit.core.errors import EngineUnavailable, SettingError
from afterwit.engines.server.client import ServerClient

LOOK_AGAIN_S = 1.0


async def answered(client: ServerClient, path: str, *, called: str, patience_s: float) -> None:
    """Return when a GET of `path` is answered. SettingError if no server does so within `patience_s` seconds.

    `called`: what kind of server it should be, for people.
    """
    last: EngineUnavailable | None = None
    try:
        async with asyncio.timeout(patience_s):
            while True:
                try:
                    await client.get(path, within_s=patience_s)
                    return
                except EngineUnavailable as error:
                    last = error
                await asyncio.sleep(LOOK_AGAIN_S)
    except TimeoutError as error:
        said = f" ({last})" if last else ""
        raise SettingError(
            f"no {called} server answered at {client.url} within {patience_s:g} s{said}: start it, let "
            "`afterwit up` start one, or correct engine.url"
        ) from error
