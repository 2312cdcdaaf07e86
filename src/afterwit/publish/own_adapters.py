"""Adapters of somebody's own in the engine: loaded when a request asks for one, unloaded when it is idle.

`Publisher` gives the engine the newest version of one adapter; here it is decided whose, and when.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from afterwit.adapters import SHARED
from afterwit.engines.port import Engine, Generate, Step, Weights
from afterwit.errors import AfterwitError
from afterwit.publish.publisher import Publisher

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many adapters the engine keeps, and for how long."""

    most: int
    idle_s: float


class OwnAdapters:
    """Keeps at most `room.most` of them loaded, beside the shared one.

    Used from the event loop only. An adapter that responses use is never unloaded: if all are in use, a
    request for another one waits.
    """

    def __init__(
        self,
        engine: Engine,
        publisher_of: Callable[[str], Publisher],
        chains: Callable[[], Mapping[str, Sequence[int]]],
        *,
        room: Room,
        now: Callable[[], float],
    ) -> None:
        """`chains` reads the numbers of each adapter's versions, ascending."""
        self._engine, self._publisher_of, self._read_chains = engine, publisher_of, chains
        self._room, self._now = room, now
        self._chains: Mapping[str, Sequence[int]] = {}
        self._publishers: dict[str, Publisher] = {}
        self._used_at: dict[str, float] = {}
        """When the adapters that were loaded were used last, least recently used first."""
        self._users: Counter[str] = Counter()
        self._leaving: set[str] = set()
        """Those that are being unloaded."""
        self._changing = asyncio.Lock()
        """Held while an adapter is loaded or unloaded."""
        self._freed = asyncio.Event()
        """Set, and replaced, when an adapter is used no more."""

    @property
    def loaded(self) -> list[str]:
        """Those in the engine, least recently used first."""
        return [adapter for adapter in self._used_at if self._engine.live(adapter) is not None]

    @asynccontextmanager
    async def serving(self, adapter: str) -> AsyncIterator[None]:
        """While the body runs, the engine has the adapter, if it has a version that can be served."""
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
                self._tell()

    async def step(self) -> bool:
        """Give those that are loaded their newest versions, and unload those that are idle; whether anything
        changed. Raises the first error once all have had their turn."""
        self._chains = await asyncio.to_thread(self._read_chains)
        changed, problem = False, None
        for adapter in self.loaded:
            async with self._changing:
                try:
                    changed = await self._kept_up(adapter) or changed
                except AfterwitError as error:
                    problem = problem or error
        self._tell()
        if problem is not None:
            raise problem
        return changed

    async def _kept_up(self, adapter: str) -> bool:
        if not self._users[adapter] and self._now() - self._used_at.get(adapter, 0.0) > self._room.idle_s:
            await self._unload(adapter)
            return True
        newer = self._chains.get(adapter, (0,))[-1] > (self._engine.live(adapter) or 0)
        return newer and await self._publisher(adapter).step()

    async def _load(self, adapter: str) -> None:
        """An adapter whose newest version cannot be served gets an older one, or the base answers."""
        while True:
            async with self._changing:
                if self._engine.live(adapter) is not None:
                    return
                if self._has_room():
                    await self._put(adapter)
                    return
                freed = self._freed
            await freed.wait()

    async def _put(self, adapter: str) -> None:
        if len(self.loaded) >= self._room.most:
            await self._unload(self._idlest())
        try:
            await self._publisher(adapter).step()
        except AfterwitError as error:
            log.warning("the adapter %s: %s", adapter, error)
        self._used(adapter)

    def _tell(self) -> None:
        self._freed.set()
        self._freed = asyncio.Event()

    def _has_room(self) -> bool:
        return len(self.loaded) < self._room.most or any(not self._users[each] for each in self.loaded)

    def _idlest(self) -> str:
        return next(each for each in self.loaded if not self._users[each])

    async def _unload(self, adapter: str) -> None:
        """A request that comes meanwhile waits until it is gone, and loads it again."""
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

    def _publisher(self, adapter: str) -> Publisher:
        if adapter not in self._publishers:
            self._publishers[adapter] = self._publisher_of(adapter)
        return self._publishers[adapter]


class EngineOfMany:
    """Implements `port.Engine` over one that serves several adapters: each is there when it is asked for."""

    def __init__(self, engine: Engine, own: OwnAdapters) -> None:
        self._engine, self._own = engine, own
        self.facts, self.capabilities = engine.facts, engine.capabilities
        self.live, self.score = engine.live, engine.score
        self.stage, self.probe, self.unload = engine.stage, engine.probe, engine.unload
        self.promote, self.discard, self.close = engine.promote, engine.discard, engine.close

    @property
    def version(self) -> int:
        return self._engine.version

    @property
    def fault(self) -> str | None:
        return self._engine.fault

    @property
    def reduced(self) -> str | None:
        return self._engine.reduced

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """A response of somebody's own adapter begins once it is loaded, which takes as long as its files."""
        if request.adapter == SHARED or request.weights is not Weights.LIVE:
            async with aclosing(self._engine.generate(request)) as steps:
                async for step in steps:
                    yield step
            return
        async with self._own.serving(request.adapter):
            async with aclosing(self._engine.generate(request)) as steps:
                async for step in steps:
                    yield step
