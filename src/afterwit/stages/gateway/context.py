"""What the endpoints share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TypeVar

from afterwit.core.adapters import AdapterPolicy
from afterwit.core.errors import StoreUnavailable
from afterwit.engines.port import Engine
from afterwit.stages.gateway.auth import KeyCache
from afterwit.stages.gateway.deliveries import Deliveries
from afterwit.stages.gateway.http import InFlight
from afterwit.stages.gateway.metrics import Metrics
from afterwit.stages.gateway.settings import GatewaySettings
from afterwit.store import AsyncStore, Store
from afterwit.wire.dialect import Dialect
from afterwit.wire.model_text.render import Renderer

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that fails, in a plain sentence, and when it last failed."""

    message: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """One gateway: the parts it uses, its limits, and what it knows of its own health."""

    engine: Engine
    renderer: Renderer
    store: AsyncStore
    deliveries: Deliveries
    dialects: tuple[Dialect, ...]
    settings: GatewaySettings
    adapters: AdapterPolicy
    keys: KeyCache
    in_flight: InFlight
    metrics: Metrics
    readers: Executor
    """Where long requests are read and rendered."""
    wake_judge: Callable[[], None]
    now: Callable[[], float]
    """Seconds since the epoch."""
    entropy: Callable[[int], bytes]
    started: float
    faults: dict[str, Fault] = field(default_factory=dict)
    """The last fault of `store` and of `engine`; removed when it works again."""
    servers: Callable[[], Mapping[str, str]] = dict
    """Of the servers that this process started: why one is gone, by its name."""
    omitted: set[str] = field(default_factory=set)
    """What was left out of a request first because the model reads text: the log says it once."""

    async def read(self, work: Callable[[Store], T], *, within_s: float) -> T:
        """What the store says. Raises StoreError, also if it takes longer than this."""
        try:
            async with asyncio.timeout(within_s):
                return await self.store.call(work)
        except TimeoutError as error:
            raise StoreUnavailable(f"no answer within {within_s:g} seconds") from error

    @property
    def names(self) -> tuple[str, ...]:
        """The model names that requests may use."""
        return (self.engine.facts.model, *self.settings.aliases)
