"""Watches a server: closes the door when it is away, and opens it when it is back with the right weights."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from afterwit.core.errors import AfterwitError, EngineUnavailable
from afterwit.engines.server.door import Door

WHO = "watch"
log = logging.getLogger(__name__)


class Watch:
    """`run` it as a task. Whoever meets a fault of the server tells `lost`."""

    def __init__(
        self,
        door: Door,
        *,
        check: Callable[[], Awaitable[None]],
        recover: Callable[[], Awaitable[None]],
        every_s: float,
    ) -> None:
        """`check` returns if the server can serve, `recover` brings the right weights back to it."""
        self._door, self._check, self._recover, self._every_s = door, check, recover, every_s
        self._told = asyncio.Event()

    def lost(self, error: Exception) -> None:
        """The server is not what it was: nobody passes until it is seen to be right."""
        if not self._door.closed_by(WHO):
            log.warning("the engine's server is away: %s", error)
        self._door.close(WHO, str(error))
        self._told.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            try:
                await self._look()
            except AfterwitError as error:
                self._door.close(WHO, str(error))
            except (
                Exception
            ) as error:  # a fault of our own must not end the watch: nobody would open the door
                log.exception("watching the engine's server failed")
                self._door.close(WHO, f"watching the server failed: {type(error).__name__} (see the log)")
            self._told.clear()
            try:
                async with asyncio.timeout(self._every_s):
                    await self._told.wait()
            except TimeoutError:
                pass

    async def _look(self) -> None:
        try:
            await self._check()
        except EngineUnavailable as error:
            self.lost(error)
            return
        if self._door.closed_by(WHO):
            await self._recover()
            self._door.open(WHO)
            log.warning("the engine's server is back")
