"""Servers that were not there when the fleet began: each is opened and joins when it comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from afterwit.core.errors import AfterwitError, NobodyAnswers
from afterwit.engines.server.engine import ServerEngine

AGAIN_S = 60.0
"""Seconds until a server that does not fit is looked at again: somebody has to start it anew."""
Open = Callable[[], Awaitable[ServerEngine]]
"""Waits for the server some time. NobodyAnswers, or SettingError if it does not fit the model."""
log = logging.getLogger(__name__)


class Late:
    """Make it inside the event loop that uses it."""

    def __init__(self, openers: Mapping[str, Open], join: Callable[[str, ServerEngine], None]) -> None:
        """By the servers' names. `join` takes an engine, or raises SettingError."""
        self.reasons = dict.fromkeys(openers, "it has not answered yet")
        """Why each is not there, by name."""
        self._join = join
        self._tasks = [asyncio.create_task(self._await(name, open_)) for name, open_ in openers.items()]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _await(self, name: str, open_: Open) -> None:
        while True:
            try:
                engine = await open_()
                try:
                    self._join(name, engine)
                except BaseException:
                    await engine.close()
                    raise
            except NobodyAnswers:
                continue
            except AfterwitError as error:
                if self.reasons[name] != str(error):
                    log.warning("the fleet: %s", error)
                self.reasons[name] = str(error)
                await asyncio.sleep(AGAIN_S)
            else:
                del self.reasons[name]
                log.info("the server at %s has joined the fleet", name)
                return
