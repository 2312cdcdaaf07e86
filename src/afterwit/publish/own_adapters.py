"""Personal adapters in the engine: loaded on request, unloaded when idle.

`Publisher` loads the newest version of one adapter; `OwnAdapters` decides which adapter, and when.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import cache

from afterwit.engines.port import Engine, Generate, Step, Weights
from afterwit.errors import AfterwitError
from afterwit.publish.publisher import Publisher
from afterwit.turn import SHARED

log = logging.getLogger(__name__)


class OwnAdapters:
    """Implements `port.Engine` over one that serves several adapters, and keeps at most `most` personal ones
    loaded.

    Used from the event loop only. An adapter in use is never unloaded: if all are in use, a request for
    another one waits.
    """

    def __init__(
        self,
        engine: Engine,
        publisher_of: Callable[[str], Publisher],
        chains: Callable[[], Mapping[str, Sequence[int]]],
        *,
        most: int,
        idle_s: float,
        now: Callable[[], float],
    ) -> None:
        """`chains` reads the version numbers of each adapter, ascending. An adapter is unloaded after
        `idle_s` seconds without a request."""
        self._engine = engine
        self.facts, self.capabilities, self.live = engine.facts, engine.capabilities, engine.live
        self.score, self.probe, self.close = engine.score, engine.probe, engine.close
        self.stage, self.promote, self.discard = engine.stage, engine.promote, engine.discard
        self.unload = engine.unload
        self._publisher = cache(publisher_of)
        self._read_chains, self._most, self._idle_s, self._now = chains, most, idle_s, now
        self._chains: Mapping[str, Sequence[int]] = {}
        self._used_at: dict[str, float] = {}
        """When each loaded adapter was used last, least recently used first."""
        self._users: Counter[str] = Counter()
        self._leaving: set[str] = set()
        """Adapters that are being unloaded."""
        self._changing = asyncio.Lock()
        """Held while an adapter is loaded or unloaded."""
        self._freed = asyncio.Event()
        """Set, and replaced, when an adapter is no longer in use."""

    @property
    def version(self) -> int:
        return self._engine.version

    @property
    def fault(self) -> str | None:
        return self._engine.fault

    @property
    def reduced(self) -> str | None:
        return self._engine.reduced

    @property
    def loaded(self) -> list[str]:
        """Adapters in the engine, least recently used first."""
        return [adapter for adapter in self._used_at if self._engine.live(adapter) is not None]

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """A response of a personal adapter begins once the adapter is loaded, and keeps it loaded."""
        async with AsyncExitStack() as stack:
            if request.adapter != SHARED and request.weights is Weights.LIVE:
                await stack.enter_async_context(self._serving(request.adapter))
            steps = await stack.enter_async_context(aclosing(self._engine.generate(request)))
            async for step in steps:
                yield step

    @asynccontextmanager
    async def _serving(self, adapter: str) -> AsyncIterator[None]:
        """Keep the adapter loaded while the body runs, if it has a version that can be served."""
        self._users[adapter] += 1
        try:
            if adapter in self._chains and (adapter in self._leaving or self._engine.live(adapter) is None):
                await self._load(adapter)
            self._used(adapter)
            yield
        finally:
            self._users[adapter] -= 1
            self._used(adapter)
            if not self._users[adapter]:
                del self._users[adapter]
                self._notify()

    async def step(self) -> bool:
        """Update the loaded adapters to their newest versions, and unload idle ones. Whether anything
        changed.

        Raises the first error after all have been tried.
        """
        self._chains = await asyncio.to_thread(self._read_chains)
        changed, problem = False, None
        for adapter in self.loaded:
            async with self._changing:
                try:
                    if (
                        not self._users[adapter]
                        and self._now() - self._used_at.get(adapter, 0.0) > self._idle_s
                    ):
                        await self._unload(adapter)
                        changed = True
                    elif self._chains.get(adapter, (0,))[-1] > (self._engine.live(adapter) or 0):
                        changed = await self._publisher(adapter).step() or changed
                except AfterwitError as error:
                    problem = problem or error
        self._notify()
        if problem is not None:
            raise problem
        return changed

    async def _load(self, adapter: str) -> None:
        """If its newest version cannot be served, an older one is loaded, or the base answers."""
        while True:
            async with self._changing:
                if self._engine.live(adapter) is not None:
                    return
                full = len(self.loaded) >= self._most
                idlest = next((each for each in self.loaded if not self._users[each]), None)
                if full and idlest is not None:
                    await self._unload(idlest)
                if not full or idlest is not None:
                    try:
                        await self._publisher(adapter).step()
                    except AfterwitError as error:
                        log.warning("the adapter %s: %s", adapter, error)
                    return
                freed = self._freed
            await freed.wait()

    async def _unload(self, adapter: str) -> None:
        """A request that arrives meanwhile waits until it is unloaded, and loads it again."""
        self._leaving.add(adapter)
        try:
            await self._engine.unload(adapter)
            self._used_at.pop(adapter, None)
        finally:
            self._leaving.remove(adapter)

    def _used(self, adapter: str) -> None:
        if self._engine.live(adapter) is not None:
            self._used_at.pop(adapter, None)
            self._used_at[adapter] = self._now()

    def _notify(self) -> None:
        self._freed.set()
        self._freed = asyncio.Event()
