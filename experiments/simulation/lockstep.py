"""What makes a run repeatable: the engine answers in whole batches, store and threads answer at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.port import Generate, Step
from afterwit.errors import StoreError
from afterwit.store import AsyncStore, Store

T = TypeVar("T")

QUIET_TURNS = 20
"""A batch is complete after this many turns of the event loop without a new request. Nothing else in a run
waits for anything, so every request of the batch has arrived by then.
"""


class LockstepEngine:
    """The embedded engine, which answers all requests that are made at one time in one batch."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self._engine = engine
        self._waiting: list[tuple[Generate, asyncio.Future[list[Step]]]] = []
        self._batch: asyncio.Task[None] | None = None
        self.facts, self.capabilities = engine.facts, engine.capabilities
        self.stage, self.probe, self.score = engine.stage, engine.probe, engine.score
        self.promote, self.discard, self.close = engine.promote, engine.discard, engine.close
        self.live, self.unload = engine.live, engine.unload

    @property
    def version(self) -> int:
        """The version that new tokens are sampled from."""
        return self._engine.version

    @property
    def reduced(self) -> str | None:
        return self._engine.reduced

    @property
    def fault(self) -> str | None:
        """Why requests fail now."""
        return self._engine.fault

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """The whole response, step by step, when its batch is done."""
        answer: asyncio.Future[list[Step]] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if len(self._waiting) == 1:
            self._batch = asyncio.create_task(self._answer())
        for step in await answer:
            yield step

    async def _answer(self) -> None:
        asked = 0
        while asked < len(self._waiting):
            asked = len(self._waiting)
            for _ in range(QUIET_TURNS):
                await asyncio.sleep(0)
        batch, self._waiting = self._waiting, []
        try:
            responses = await self._engine.generate_together([request for request, _ in batch])
        except Exception as error:
            for _, answer in batch:
                answer.set_exception(error)
            return
        for (_, answer), steps in zip(batch, responses, strict=True):
            answer.set_result(steps)


class InlineStore(AsyncStore):
    """A store without a thread: each call is done when it is made."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def call(self, work: Callable[[Store], T]) -> T:
        """What `work` returns."""
        return work(self._store)

    def along(self, work: Callable[[Store], T], *, within_s: float) -> asyncio.Future[T]:
        """Done at once too."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            done.set_result(work(self._store))
        except StoreError as error:
            done.set_exception(error)
        return done

    async def close(self) -> None:
        """Close the store."""
        self._store.close()


class InlineExecutor(ThreadPoolExecutor):
    """What an event loop takes for threads, but the work is done at once."""

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done
