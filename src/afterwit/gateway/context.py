"""What the endpoints share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TypeVar

from afterwit.adapters import AdapterPolicy
from afterwit.chat_format.render import Renderer
from afterwit.dialects.dialect import Dialect
from afterwit.engines.port import Engine
from afterwit.errors import StoreError, StoreUnavailable
from afterwit.gateway.auth import KeyCache
from afterwit.gateway.limits import InFlight
from afterwit.gateway.metrics import Metrics
from afterwit.gateway.settings import GatewaySettings
from afterwit.store import AsyncStore, Store

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


WITHIN_S = 0.01
"""Seconds that a delivery waits for another call of the store. A process that is killed meanwhile forgets it:
the client that asks again then gets a turn that takes the place of the first, as if it had not heard it."""


Failed = Callable[[StoreError], None]


class Deliveries:
    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._untold: list[str] = []
        self._telling = 0
        """How many of them are being told."""
        self._riding: asyncio.Future[None] | None = None

    def tell(self, turns: Iterable[str], failed: Failed) -> None:
        """The clients have these turns whole: every later call of the store finds them so.

        `failed` hears what the store says instead; what it refuses is told with what comes next.
        """
        self._untold += turns
        if self._riding is None:
            self._ride(failed)

    def _ride(self, failed: Failed) -> None:
        try:
            self._riding = self._store.along(self._tell, within_s=WITHIN_S)
        except StoreError as error:
            failed(error)
        else:
            self._riding.add_done_callback(lambda riding: self._told(riding, failed))

    def _tell(self, store: Store) -> None:
        """In the store's thread, perhaps more than once: more turns may come meanwhile."""
        telling = self._untold.copy()
        store.delivered(telling)
        self._telling = len(telling)

    def _told(self, riding: asyncio.Future[None], failed: Failed) -> None:
        self._riding = None
        error = riding.exception()
        if isinstance(error, StoreError):
            failed(error)
            return
        if error is not None:
            raise error
        del self._untold[: self._telling]
        if self._untold:
            self._ride(failed)
