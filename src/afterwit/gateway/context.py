"""Shared by all endpoints: the gateway's parts, limits, known faults and counters."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from afterwit.chat_format.render import Renderer
from afterwit.dialects.dialect import Dialect, Usage
from afterwit.dialects.table import served
from afterwit.engines.port import Engine
from afterwit.errors import StoreError, StoreLost, StoreUnavailable
from afterwit.gateway.auth import KeyCache, new_key
from afterwit.gateway.backlog import TRY_AGAIN_S, Backlog, UnrecordedTurn
from afterwit.gateway.limits import InFlight
from afterwit.gateway.settings import GatewaySettings
from afterwit.store import AsyncStore, Store
from afterwit.turn import AdapterPolicy
from afterwit.vetting.redaction import Redaction

log = logging.getLogger("afterwit.gateway")

T = TypeVar("T")

CALLER = "afterwit.caller"
"""ASGI scope key of the request's caller; None for a probe without a key."""

HEADERS = "afterwit.headers"
"""ASGI scope key of the headers as text: names in lower case; of a header sent twice, the last."""

READERS = 4
"""Threads that read and render long requests. The event loop waits its turn among them."""

WITHIN_S = 0.01
"""Seconds that a delivery waits for another call of the store. A process that is killed meanwhile forgets it:
if the client asks again, its new turn supersedes the first, as if the first had not arrived."""

STORE_WITHIN_S, LOST_TRIES = 15.0, 12
"""Seconds in all that a request waits for the store, which itself waits ten for another process; tries at a
store whose connection is lost."""
STILL_FAILING_S = 1.0
"""Seconds that a request waits, once, for a store that is known to fail."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Fault(NamedTuple):
    """A fault in a plain sentence, and when it last occurred."""

    message: str
    at: float


class Lessons(Protocol):
    """The unlearned lessons of a client's adapter as text for prompts; empty: none."""

    def __call__(self, store: Store, *, adapter: str, scope: str, now: float) -> str: ...


@dataclass(slots=True, kw_only=True)
class Gateway:
    """One gateway over an engine and a store."""

    engine: Engine
    renderer: Renderer
    store: AsyncStore
    settings: GatewaySettings
    dialects: tuple[Dialect, ...] = field(default_factory=served)
    adapters: AdapterPolicy = field(default_factory=AdapterPolicy)
    redaction: Redaction = field(default_factory=Redaction)
    lessons: Lessons | None = None
    """The lessons that a new conversation's prompt shows; None: none does."""
    practises: bool = False
    """Whether a lesson on a turn that has trained is practised."""
    unrecorded: Path | None = None
    """The file of the turns that wait for the store; None: they wait in memory."""
    wake_judge: Callable[[], None] = lambda: None
    """Called when a turn got its next state."""
    servers: Callable[[], Mapping[str, str]] = dict
    """The servers that this process started and that are gone: why, by name."""
    token: str = field(default_factory=new_key)
    """Opens the page and everything that only reads, while there are no keys."""
    now: Callable[[], float] = time.time
    """Seconds since the epoch."""
    entropy: Callable[[int], bytes] = os.urandom
    started: float = field(init=False)
    keys: KeyCache = field(init=False)
    in_flight: InFlight = field(init=False)
    deliveries: Deliveries = field(init=False)
    backlog: Backlog = field(init=False)
    metrics: Metrics = field(init=False)
    readers: ThreadPoolExecutor = field(init=False)
    faults: dict[str, Fault] = field(default_factory=dict)
    """The last fault of `store` and of `engine`; removed when it works again."""
    feedback_fault: str | None = None
    """Why the latest feedback was not recorded; the same reason is logged once."""
    warned: set[str] = field(default_factory=set)
    """The warnings that were logged, each once."""

    def __post_init__(self) -> None:
        store, settings = self.store, self.settings
        self.started = self.now()
        self.keys = KeyCache(
            lambda: store.call(lambda opened: opened.keys()),
            refresh_s=settings.key_refresh_s,
            now=self.now,
            token=self.token,
        )
        self.in_flight = InFlight(settings.max_requests, settings.max_pending_bytes)
        self.deliveries = Deliveries(store, self._store_failed)
        self.metrics = Metrics()
        self.backlog = Backlog(
            self._record,
            path=self.unrecorded,
            failed=self._store_failed,
            works=lambda: self.faults.pop("store", None),
            waiting=self.metrics.waiting,
            lost=self.metrics.unrecorded,
        )
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="afterwit-read")

    @property
    def names(self) -> tuple[str, ...]:
        """The model names that requests may use."""
        return (self.engine.facts.model, *self.settings.aliases)

    def warn_once(self, message: str, *facts: object) -> None:
        """Log a warning the first time, whatever the `facts` in it."""
        if message not in self.warned:
            self.warned.add(message)
            log.warning(message, *facts)

    async def off_loop(self, size: int, work: Callable[[], T]) -> T:
        """Run `work`, in a thread if its text is long, so that streams go on."""
        if size < self.settings.thread_from_bytes:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self.readers, work)

    async def read(self, work: Callable[[Store], T], *, within_s: float) -> T:
        """Read the store. Raises StoreError, also if it takes longer than this."""
        try:
            async with asyncio.timeout(within_s):
                return await self.store.call(work)
        except TimeoutError as error:
            raise StoreUnavailable(f"no answer within {within_s:g} seconds") from error

    async def try_store(self, work: Callable[[Store], T], *, within_s: float) -> T | None:
        """The store's result once all turns that waited are recorded; None if it fails or takes longer, and
        at once while they cannot be. `work` is repeated if the connection is lost.

        /readyz shows the fault until a turn is recorded again.
        """
        if self.backlog.stuck:
            return None
        tries = LOST_TRIES
        if "store" in self.faults:
            within_s, tries = STILL_FAILING_S, 1
        try:
            async with asyncio.timeout(within_s):
                await self.backlog.empty()
                for _ in range(tries - 1):
                    with suppress(StoreLost):
                        return await self.store.call(work)
                    await asyncio.sleep(TRY_AGAIN_S)
                return await self.store.call(work)
        except StoreError as error:
            self._store_failed(error)
        except TimeoutError:
            self._store_failed(StoreUnavailable(f"no answer within {within_s:g} seconds"))
        return None

    def _store_failed(self, error: StoreError) -> None:
        """Log the first failure of the store; keep the newest for /readyz."""
        if "store" not in self.faults:
            log.error("turns are served, and wait to be recorded: %s", error)
        self.faults["store"] = Fault(f"Turns are served, and wait to be recorded: {error}", self.now())

    async def _record(self, line: bytes, delivered: Callable[[], bool]) -> None:
        def record(store: Store) -> bool:
            return UnrecordedTurn.read(line).record(store, delivered=delivered())

        if await self.read(record, within_s=STORE_WITHIN_S):
            self.wake_judge()


class Deliveries:
    """Marks turns as delivered in the store's next call, so that no request waits for a call of its own.

    If the store refuses, `failed` gets its error, and the turns are tried again with the next ones.
    """

    def __init__(self, store: AsyncStore, failed: Callable[[StoreError], None]) -> None:
        self._store, self._failed = store, failed
        self._waiting: list[str] = []
        self._call: asyncio.Future[int] | None = None

    def add(self, turns: Iterable[str]) -> None:
        """The clients have these turns whole: every later call of the store sees that."""
        self._waiting += turns
        if self._call is None:
            self._send()

    def _send(self) -> None:
        def deliver(store: Store) -> int:  # in the store's thread, and repeated if its transaction is
            turns = self._waiting.copy()
            store.delivered(turns)
            return len(turns)

        def done(call: asyncio.Future[int]) -> None:
            self._call = None
            if isinstance(error := call.exception(), StoreError):
                self._failed(error)
                return
            del self._waiting[: call.result()]
            if self._waiting:
                self._send()

        try:
            self._call = self._store.along(deliver, within_s=WITHIN_S)
        except StoreError as error:
            self._failed(error)
        else:
            self._call.add_done_callback(done)


class Metrics:
    """Counters of one gateway: several may run in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        self._requests = counter("afterwit_requests", "HTTP requests.", ("route", "status"))
        tokens = counter("afterwit_tokens", "Tokens served.", ("kind",))
        self._prompt, self._completion = tokens.labels("prompt"), tokens.labels("completion")
        self.unrecorded = counter("afterwit_unrecorded_turns", "Turns served and never recorded.")
        text = "Turns served that wait for the store."
        self.waiting = Gauge("afterwit_waiting_turns", text, registry=self.registry)
        self.client_left = counter("afterwit_clients_left", "Responses whose client went away.")
        histogram = partial(Histogram, buckets=SECONDS, registry=self.registry)
        self.first_token = histogram("afterwit_first_token_seconds", "Request to first token.")
        self._response = histogram("afterwit_response_seconds", "Request to the end of the response.")

    def request(self, route: str, status: int) -> None:
        self._requests.labels(route, status).inc()

    def answered(self, usage: Usage, seconds: float) -> None:
        """A whole response was sent."""
        self._prompt.inc(usage.prompt)
        self._completion.inc(usage.completion)
        self._response.observe(seconds)
