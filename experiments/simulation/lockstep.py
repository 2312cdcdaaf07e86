"""Repeatable runs: the engine answers in whole batches, store and threads answer at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from afterwit.engines.embedded.engine import EmbeddedEngine, next_step
from afterwit.engines.port import Generate, Step
from afterwit.errors import StoreError
from afterwit.store import AsyncStore, Store

T = TypeVar("T")

QUIET_TURNS = 20
"""A batch is complete after this many turns of the event loop without a new request. Nothing else in a run
waits for anything, so every request of the batch has arrived by then.
"""


class BatchEngine(EmbeddedEngine):
    """An embedded engine that can answer several requests in one batch."""

    async def generate_together(self, requests: Sequence[Generate]) -> list[list[Step]]:
        """All responses, from one batch that starts at once. Raises the first error of `generate`.

        If no one else uses the engine, and `prefix_cache_gib` is 0, seeded requests without constraints give
        the same ids and log-probs each time, to the last bit.
        """
        self._check_open()
        started = [await self._prepared(request) for request in requests]

        def add() -> None:
            for runner, sequence, _ in started:
                runner.add(sequence)

        self._worker.post(add)
        responses: list[list[Step]] = []
        try:
            for _, _, events in started:
                responses.append([await next_step(events)])
                while not responses[-1][-1].ended:
                    responses[-1].append(await next_step(events))
        finally:
            for runner, sequence, _ in started:
                self._worker.post(partial(runner.cancel, sequence))
        return responses


class LockstepEngine(BatchEngine):
    """Answers all concurrent requests in one batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._asked: list[tuple[Generate, asyncio.Future[list[Step]]]] = []
        self._batch: asyncio.Task[None] | None = None

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """The whole response, step by step, when its batch is done."""
        answer: asyncio.Future[list[Step]] = asyncio.get_running_loop().create_future()
        self._asked.append((request, answer))
        if len(self._asked) == 1:
            self._batch = asyncio.create_task(self._answer())
        for step in await answer:
            yield step

    async def _answer(self) -> None:
        asked = 0
        while asked < len(self._asked):
            asked = len(self._asked)
            for _ in range(QUIET_TURNS):
                await asyncio.sleep(0)
        batch, self._asked = self._asked, []
        try:
            responses = await self.generate_together([request for request, _ in batch])
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
        """Run `work` and return its result."""
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
    """Looks like a pool of threads to an event loop, but does the work at once."""

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done
