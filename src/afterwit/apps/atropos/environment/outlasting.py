"""A server that is away, or has forgotten this environment, ends no run: it keeps all in memory alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import aiohttp
from tenacity import RetryError

from afterwit.core.errors import SettingError

log = logging.getLogger(__name__)
LOOK_S = 0.2
"""Shorter than the server takes to start: nobody misses that it was gone."""
Call = Callable[[], Awaitable[object]]
Sleep = Callable[[float], Awaitable[object]]


async def outlasting(ask: Call, register: Call, *, url: str, sleep: Sleep = asyncio.sleep) -> None:
    """Ask the server at `url` until it answers. One that was started anew is told of the environment first.

    It knows an environment by a number. When it fails, it does not know the number; when it answers after
    nobody had listened at its address, another environment may have the number by now: `register`.
    """
    waits = gone = False
    while True:
        error = await _failure(ask)
        if error is None and not gone:
            return
        if error is None or _is_fault(error):
            log.warning("%s has forgotten this environment: it registers again", url)
            error = await _failure(register)
            if error is None:
                waits = gone = False
                continue
        gone = gone or _nobody_listens(error)
        if not waits:
            log.warning("waiting for %s: %s", url, error)
        waits = True
        await sleep(LOOK_S)


async def answered(call: Call, *, url: str, sleep: Sleep = asyncio.sleep) -> None:
    """Call until the server at `url` answers."""
    said = False
    while (error := await _failure(call)) is not None:
        if not said:
            log.warning("waiting for %s: %s", url, error)
        said = True
        await sleep(LOOK_S)


async def reached(url: str, *, sleep: Sleep = asyncio.sleep) -> None:
    """Wait until the server at `url` is there. SettingError if something else answers."""

    async def look() -> None:
        async with aiohttp.ClientSession() as session, session.get(f"{url.rstrip('/')}/info") as answer:
            if answer.status >= 400:
                raise SettingError(
                    f"what answers at {url} is no run-api of Atropos ({answer.status}): start one, or name "
                    "its address with --env.rollout_server_url"
                )

    await answered(look, url=url, sleep=sleep)


def _is_fault(error: Exception) -> bool:
    """Whether the server itself failed, as it does for a number that it does not know."""
    return isinstance(error, aiohttp.ClientResponseError) and error.status == 500


def _nobody_listens(error: Exception) -> bool:
    """Whether there is no process: what it knew is lost."""
    return isinstance(error, aiohttp.ClientConnectorError) and isinstance(
        error.os_error, ConnectionRefusedError
    )


async def _failure(call: Call) -> Exception | None:
    """Why the server did not answer; None if it did. The library tries again, with an error of its own."""
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
