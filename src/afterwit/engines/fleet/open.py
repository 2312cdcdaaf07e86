"""From addresses to an engine: one server, or a fleet of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from afterwit.engines.fleet.fleet import Fleet
from afterwit.engines.fleet.member import Member
from afterwit.engines.port import Engine
from afterwit.engines.server.engine import ServerEngine
from afterwit.engines.server.settings import ServerSettings
from afterwit.errors import NobodyAnswers, SettingError

LATE_S = 10.0
"""Seconds that further servers have to be opened once one is; later ones join while the fleet serves."""

S = TypeVar("S", bound=ServerSettings, contravariant=True)


class OpenOne(Protocol[S]):
    """What opens one server of a kind."""

    def __call__(self, folder: Path, settings: S, *, takes_weights: bool) -> Awaitable[ServerEngine]: ...


async def open_each(folder: Path, settings: S, open_one: OpenOne[S], *, takes_weights: bool) -> Engine:
    """The engine over the server, or all servers, of `engine.url`.

    Of several one is enough to begin with: others may come later. SettingError if one does not fit the
    model, or if two serve different models; NobodyAnswers if none is there within `patience_s`.
    """
    openers = {
        url: partial(open_one, folder, replace(settings, url=url), takes_weights=takes_weights)
        for url in settings.urls
    }
    if len(openers) == 1:
        return await openers[settings.urls[0]]()
    engines = await _there({url: asyncio.ensure_future(open_()) for url, open_ in openers.items()})
    members = [Member(url, engine) for url, engine in engines.items()]
    late = {url: open_ for url, open_ in openers.items() if url not in engines}
    try:
        return Fleet(members, late, patience_s=settings.patience_s, watch_s=settings.watch_s)
    except SettingError:
        await _close(engines.values())
        raise


async def _there(opening: Mapping[str, asyncio.Future[ServerEngine]]) -> dict[str, ServerEngine]:
    """The engines of the servers that are there; if one of these cannot be opened, its error is raised.

    Once one is open, the others have LATE_S seconds.
    """
    try:
        left: set[asyncio.Future[ServerEngine]] = set(opening.values())
        while left and not _opened(opening):
            _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            _raise_unfit(opening.values())
        if left:
            await asyncio.wait(left, timeout=LATE_S)
            _raise_unfit(opening.values())
        if not (found := _opened(opening)):
            await next(iter(opening.values()))  # raises that nobody answers
    except BaseException:
        await _given_up(opening.values())
        await _close(_opened(opening).values())
        raise
    await _given_up(future for url, future in opening.items() if url not in found)
    return found


def _opened(opening: Mapping[str, asyncio.Future[ServerEngine]]) -> dict[str, ServerEngine]:
    return {
        url: future.result()
        for url, future in opening.items()
        if future.done() and not future.cancelled() and future.exception() is None
    }


def _raise_unfit(opening: Iterable[asyncio.Future[ServerEngine]]) -> None:
    """The first error of a server that answers."""
    for future in opening:
        error = future.exception() if future.done() else None
        if error is not None and not isinstance(error, NobodyAnswers):
            raise error


async def _given_up(opening: Iterable[asyncio.Future[ServerEngine]]) -> None:
    for future in (several := list(opening)):
        future.cancel()
    await asyncio.gather(*several, return_exceptions=True)


async def _close(engines: Iterable[ServerEngine]) -> None:
    await asyncio.gather(*(engine.close() for engine in engines))
