"""From addresses to an engine: one server, or a fleet of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from afterwit.core.errors import SettingError
from afterwit.engines.fleet.fleet import Fleet
from afterwit.engines.fleet.member import Member
from afterwit.engines.port import Engine
from afterwit.engines.server.engine import ServerEngine
from afterwit.engines.server.settings import ServerSettings

S = TypeVar("S", bound=ServerSettings, contravariant=True)


class OpenOne(Protocol[S]):
    """What opens one server of a kind."""

    def __call__(self, folder: Path, settings: S, *, takes_weights: bool) -> Awaitable[ServerEngine]: ...


async def open_each(folder: Path, settings: S, open_one: OpenOne[S], *, takes_weights: bool) -> Engine:
    """The engine over the server, or all servers, of `engine.url`.

    SettingError if one does not answer or does not fit the model, or if two serve different models.
    """
    alone = [replace(settings, url=url) for url in settings.urls]
    engines = await _all(
        [asyncio.ensure_future(open_one(folder, each, takes_weights=takes_weights)) for each in alone]
    )
    if len(engines) == 1:
        return engines[0]
    members = [Member(url, engine) for url, engine in zip(settings.urls, engines, strict=True)]
    try:
        return Fleet(members, patience_s=settings.patience_s, watch_s=settings.watch_s)
    except SettingError:
        await _close(engines)
        raise


async def _all(opening: Sequence[asyncio.Future[ServerEngine]]) -> list[ServerEngine]:
    """The engines; if one cannot be opened, the others are closed and its error is raised."""
    try:
        return list(await asyncio.gather(*opening))
    except BaseException:
        for each in opening:
            each.cancel()
        await asyncio.wait(opening)
        await _close([each.result() for each in opening if not each.cancelled() and not each.exception()])
        raise


async def _close(engines: Sequence[ServerEngine]) -> None:
    await asyncio.gather(*(engine.close() for engine in engines))
