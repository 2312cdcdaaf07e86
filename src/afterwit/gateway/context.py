"""Shared by all endpoints: the gateway's parts, limits and known faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from afterwit.adapters import AdapterPolicy
from afterwit.chat_format.render import Renderer
from afterwit.dialects.dialect import Dialect
from afterwit.engines.port import Engine
from afterwit.errors import StoreError, StoreUnavailable
from afterwit.gateway.auth import KeyCache
from afterwit.gateway.limits import InFlight
from afterwit.gateway.settings import GatewaySettings
from afterwit.store import AsyncStore, Store

if TYPE_CHECKING:
    from afterwit.gateway.status import Metrics

T = TypeVar("T")

CALLER = "afterwit.caller"
"""ASGI scope key of the request's caller; None for a probe without a key."""

HEADERS = "afterwit.headers"
"""ASGI scope key of the headers as text: names in lower case; of a header sent twice, the last."""

WITHIN_S = 0.01
"""Seconds that a delivery waits for another call of the store. A process that is killed meanwhile forgets it:
if the client asks again, its new turn supersedes the first, as if the first had not arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault in a plain sentence, and when it last occurred."""

    message: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """One gateway."""

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
    """Reads and renders long requests."""
    wake_judge: Callable[[], None]
    now: Callable[[], float]
    """Seconds since the epoch."""
    entropy: Callable[[int], bytes]
    started: float
    faults: dict[str, Fault] = field(default_factory=dict)
    """The last fault of `store` and of `engine`; removed when it works again."""
    servers: Callable[[], Mapping[str, str]] = dict
    """The servers that this process started and that are gone: why, by name."""
    omitted: set[str] = field(default_factory=set)
    """The first kind of content that was left out of a request; it is logged once."""

    async def read(self, work: Callable[[Store], T], *, within_s: float) -> T:
        """Read the store. Raises StoreError, also if it takes longer than this."""
        try:
            async with asyncio.timeout(within_s):
                return await self.store.call(work)
        except TimeoutError as error:
            raise StoreUnavailable(f"no answer within {within_s:g} seconds") from error

    @property
    def names(self) -> tuple[str, ...]:
        """The model names that requests may use."""
        return (self.engine.facts.model, *self.settings.aliases)


class Deliveries:
    """Marks turns as delivered in the store's next call, so that no request waits for a call of its own."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._waiting: list[str] = []
        self._sent = 0
        """Their number in the running call."""
        self._call: asyncio.Future[None] | None = None

    def add(self, turns: Iterable[str], failed: Callable[[StoreError], None]) -> None:
        """The clients have these turns whole: every later call of the store sees that.

        If the store refuses, `failed` gets its error, and the turns are tried again with the next ones.
        """
        self._waiting += turns
        if self._call is None:
            self._send(failed)

    def _send(self, failed: Callable[[StoreError], None]) -> None:
        def deliver(store: Store) -> None:  # in the store's thread, and repeated if its transaction is
            turns = self._waiting.copy()
            store.delivered(turns)
            self._sent = len(turns)

        def done(call: asyncio.Future[None]) -> None:
            self._call = None
            error = call.exception()
            if isinstance(error, StoreError):
                failed(error)
                return
            if error is not None:
                raise error
            del self._waiting[: self._sent]
            if self._waiting:
                self._send(failed)

        try:
            self._call = self._store.along(deliver, within_s=WITHIN_S)
        except StoreError as error:
            failed(error)
        else:
            self._call.add_done_callback(done)
