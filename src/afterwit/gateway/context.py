"""Shared by all endpoints: the gateway's parts, limits, known faults and counters."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from afterwit.chat_format.render import Renderer
from afterwit.dialects.dialect import Dialect, Usage
from afterwit.dialects.request import RequestLimits
from afterwit.dialects.table import DIALECTS
from afterwit.engines.port import Engine
from afterwit.errors import StoreError, StoreLost, StoreUnavailable
from afterwit.gateway.auth import KeyCache, new_key
from afterwit.gateway.limits import InFlight
from afterwit.gateway.settings import GatewaySettings
from afterwit.store import AsyncStore, Store
from afterwit.teaching.redaction import Redaction
from afterwit.text import counted
from afterwit.turn import AdapterPolicy

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

STORE_WITHIN_S, LOST_TRIES, TRY_AGAIN_S = 15.0, 12, 0.25
"""Seconds in all that a request waits for the store, which itself waits ten for another process; tries at a
store whose connection is lost, and the seconds between them."""
STILL_FAILING_S = 1.0
"""Seconds that a request waits, once, for a store that is known to fail."""
BACKLOG_BYTES = 256 * 2**20
"""Memory of the turns that wait for the store, as a request's text and tokens let it be estimated."""
REMIND_S = 60.0
"""Seconds between two log lines about turns that wait."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Fault(NamedTuple):
    """A fault in a plain sentence, and when it last occurred."""

    message: str
    at: float


@dataclass(slots=True, kw_only=True)
class Gateway:
    """One gateway over an engine and a store."""

    engine: Engine
    renderer: Renderer
    store: AsyncStore
    settings: GatewaySettings
    dialects: tuple[Dialect, ...] = DIALECTS
    adapters: AdapterPolicy = field(default_factory=AdapterPolicy)
    redaction: Redaction = field(default_factory=Redaction)
    practises: bool = False
    """Whether a lesson on a turn that has trained is practised."""
    """The secrets that no one may teach."""
    wake_judge: Callable[[], None] = lambda: None
    """Called when a turn got its next state."""
    servers: Callable[[], Mapping[str, str]] = dict
    """The servers that this process started and that are gone: why, by name."""
    token: str = field(default_factory=new_key)
    """Opens the page, and all that reads, while there are no keys."""
    now: Callable[[], float] = time.time
    """Seconds since the epoch."""
    entropy: Callable[[int], bytes] = os.urandom
    started: float = field(init=False)
    limits: RequestLimits = field(init=False)
    """For the dialects' parsers."""
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
    omitted: set[str] = field(default_factory=set)
    """The first kind of content that was left out of a request; it is logged once."""
    unserved: set[str] = field(default_factory=set)
    """The first type of a tool that was; it is logged once too."""

    def __post_init__(self) -> None:
        store, settings = self.store, self.settings
        self.started = self.now()
        self.limits = settings.request_limits
        self.keys = KeyCache(
            lambda: store.call(lambda opened: opened.keys()),
            refresh_s=settings.key_refresh_s,
            now=self.now,
            token=self.token,
        )
        self.in_flight = InFlight(settings.max_requests, settings.max_pending_bytes)
        self.deliveries = Deliveries(store, self._store_failed)
        self.metrics = Metrics()
        self.backlog = Backlog(self._store_failed, self._store_works, self.metrics)
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="afterwit-read")

    @property
    def names(self) -> tuple[str, ...]:
        """The model names that requests may use."""
        return (self.engine.facts.model, *self.settings.aliases)

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

    def _store_works(self) -> None:
        self.faults.pop("store", None)


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


class Backlog:
    """Turns that were served while the store was away: recorded in order as soon as it is back.

    They are in memory alone. What the store refuses is lost, and the oldest are when they become too many.
    """

    def __init__(
        self,
        failed: Callable[[StoreError], None],
        works: Callable[[], None],
        metrics: Metrics,
        *,
        most_bytes: int = BACKLOG_BYTES,
    ) -> None:
        """`failed` gets each error of the store, `works` is called when a turn was recorded."""
        self._failed, self._works, self._metrics, self._most_bytes = failed, works, metrics, most_bytes
        self._turns: deque[tuple[Callable[[], Awaitable[None]], int]] = deque()
        self._bytes = self._lost = 0
        self.stuck = False
        """The last attempt to record one failed."""
        self._recording: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._turns)

    def __str__(self) -> str:
        lost = f"; {counted(self._lost, 'other')} had to be dropped" if self._lost else ""
        return f"{counted(len(self), 'turn')} in memory{lost}"

    def add(self, record: Callable[[], Awaitable[None]], size: int) -> None:
        """A turn of about `size` bytes waits. `record` raises StoreUnavailable if it has to wait on, and may
        be called again though it was recorded."""
        self._turns.append((record, size))
        self._bytes += size
        while self._bytes > self._most_bytes and len(self) > 1:
            self._lose("there is no more room for turns that wait for the store: the oldest are dropped")
        self._metrics.waiting.set(len(self))
        if self._recording is None:
            self._recording = asyncio.create_task(self._record())

    async def empty(self) -> None:
        """Return when no turn waits."""
        if self._recording is not None:
            await asyncio.wait({self._recording})

    async def close(self, within_s: float) -> None:
        """Give the store so many seconds to come back, then log how many turns are lost."""
        if self._recording is None:
            return
        log.warning("the store has %g seconds to come back: %s", within_s, self)
        await asyncio.wait({self._recording}, timeout=within_s)
        self._recording.cancel()
        if self._turns:
            log.error("the store did not come back: %s lost", counted(len(self), "turn"))

    async def _record(self) -> None:
        now = asyncio.get_running_loop().time
        recorded, remind_at = 0, now() + TRY_AGAIN_S
        while self._turns:
            first = self._turns[0]
            try:
                await first[0]()
            except StoreUnavailable as error:
                self.stuck = True
                self._failed(error)
                if now() >= remind_at:
                    remind_at = now() + REMIND_S
                    log.warning("%s: %s", self, error)
                await asyncio.sleep(TRY_AGAIN_S)
            except Exception as error:  # the turn's own, and the others go on
                if isinstance(error, StoreError):
                    self._failed(error)
                if self._turns[0] is first:
                    self._lose(f"a turn cannot be recorded ({type(error).__name__})")
            else:
                self.stuck = False
                self._works()
                recorded += 1
                if self._turns[0] is first:
                    self._remove()
            self._metrics.waiting.set(len(self))
        self._recording, self.stuck = None, False
        if recorded:
            lost = f", {self._lost} lost" if self._lost else ""
            log.warning("the store is back: %s recorded that waited%s", counted(recorded, "turn"), lost)
        self._lost = 0

    def _lose(self, why: str) -> None:
        """Drop the oldest."""
        if not self._lost:
            log.error("%s", why)
        self._lost += 1
        self._metrics.unrecorded.inc()
        self._remove()

    def _remove(self) -> None:
        self._bytes -= self._turns.popleft()[1]


class Metrics:
    """Counters of one gateway: several may run in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        self._requests = counter("afterwit_requests", "HTTP requests.", ("route", "status"))
        tokens = counter("afterwit_tokens", "Tokens served.", ("kind",))
        self._prompt, self._completion = tokens.labels("prompt"), tokens.labels("completion")
        self.unrecorded = counter("afterwit_unrecorded_turns", "Turns served and never recorded.")
        text = "Turns served that wait in memory for the store."
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
