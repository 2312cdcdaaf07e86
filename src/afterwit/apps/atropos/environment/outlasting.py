"""A server that is away, or has forgotten this environment, ends no run: it keeps all in memory alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import aiohttp
from tenacity import RetryError

from afterwit.core.errors import SettingError

log = logging.getLogger(__name__)
LOOK_S = 1.0


async def outlasting(
    ask: Callable[[], Awaitable[object]],
    register: Callable[[], Awaitable[object]],
    *,
    url: str,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Ask the server at `url` until it answers. One that fails does not know who asks: `register` first."""
    away = False
    while (error := await _failure(ask)) is not None:
        if isinstance(error, aiohttp.ClientResponseError):
            log.warning("%s has forgotten this environment: it registers again", url)
            error = await _failure(register)
        elif not away:
            log.warning("waiting for %s: %s", url, error)
        away = error is not None
        if away:
            await sleep(LOOK_S)


async def reached(url: str, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
    """Wait until the server at `url` is there. SettingError if something else answers."""

    async def look() -> None:
        async with aiohttp.ClientSession() as session, session.get(f"{url.rstrip('/')}/info") as answer:
            answer.raise_for_status()

    said = False
    while (error := await _failure(look)) is not None:
        if isinstance(error, aiohttp.ClientResponseError):
            raise SettingError(
                f"what answers at {url} is no run-api of Atropos ({error.status}): start one, or name its "
                "address with --env.rollout_server_url"
            )
        if not said:
            log.warning("waiting for %s: is run-api started? %s", url, error)
        said = True
        await sleep(LOOK_S)


async def _failure(call: Callable[[], Awaitable[object]]) -> Exception | None:
    """Why the server did not answer; None if it did. The library tries thrice, with an error of its own."""
    try:
        await call()
    except RetryError as error:
        found = error.last_attempt.exception()
        if not isinstance(found, aiohttp.ClientError | OSError):
            raise
        return found
    except (aiohttp.ClientError, OSError) as error:
        return error
    return None
