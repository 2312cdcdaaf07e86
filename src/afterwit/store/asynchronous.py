"""A store for an event loop, behind a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from afterwit.core.errors import StoreConflict, StoreUnavailable
from afterwit.store.port import Store

T = TypeVar("T")

TRIES = 5
"""Times that a call is made whose way another process crosses."""

TOGETHER = 32
"""Most calls that share one transaction if they wait together: pages that several touch are written once."""


@dataclass(slots=True)
class _Call:
    """A call: the work, the future that its caller waits for, and what came of it."""

    work: Callable[[Store], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    result: Any = None
    error: BaseException | None = None


class AsyncStore:
    """Runs calls one after the other, in the order they were made. Owns the store and closes it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: SimpleQueue[_Call | None] = SimpleQueue()
        """None means that no more calls come."""
        self._closing = False
        self._order = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    async def call(self, work: Callable[[Store], T]) -> T:
        """What `work` returns, stored by then. `work` must not return an iterator that still reads.

        It is called again if it was in one transaction with a call that failed; nothing of that is stored.
        Cancelling the caller does not undo the work. Raises StoreUnavailable after `close`.
        """
        loop = asyncio.get_running_loop()
        call = _Call(work, loop.create_future(), loop)
        with self._order:
            if self._closing:
                raise StoreUnavailable("the store is closed")
            self._waiting.put(call)
        answer: T = await call.future
        return answer

    async def close(self) -> None:
        """Finish the calls that were made, then close the store."""
        with self._order:
            self._closing = True
            self._waiting.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while calls := self._next():
            self._perform(calls)
            for loop in {call.loop for call in calls}:
                _deliver(loop, [call for call in calls if call.loop is loop])
        self._store.close()

    def _next(self) -> list[_Call]:
        """The calls that wait, at most TOGETHER; empty if no more come."""
        calls = list[_Call]()
        while len(calls) < TOGETHER and not (calls and self._waiting.empty()):
            call = self._waiting.get()
            if call is None:
                self._waiting.put(None)
                break
            calls.append(call)
        return calls

    def _perform(self, calls: list[_Call]) -> None:
        for call in calls if len(calls) == 1 else _work_together(calls, self._store):
            _work(call, self._store)


def _work(call: _Call, store: Store) -> None:
    """By itself; again if another process was in its way."""
    for left in reversed(range(TRIES)):
        try:
            call.result, call.error = call.work(store), None
        except BaseException as error:  # for the caller, whatever it is
            call.error = error
            if isinstance(error, StoreConflict) and left:
                continue
        return


def _work_together(calls: list[_Call], store: Store) -> list[_Call]:
    """In one transaction. If a call fails, nothing of any is stored: returns the others, to be made again."""
    failing: _Call | None = None
    try:
        with store.together():
            for call in calls:
                failing = call
                call.result = call.work(store)
            failing = None
    except StoreConflict:
        return calls
    except BaseException as error:  # for the caller, whatever it is
        if failing is not None:
            failing.error = error
        return [call for call in calls if call is not failing]
    return []


def _deliver(loop: asyncio.AbstractEventLoop, calls: list[_Call]) -> None:
    try:
        loop.call_soon_threadsafe(_resolve, calls)
    except RuntimeError:  # the loop is gone, and the callers with it
        return


def _resolve(calls: list[_Call]) -> None:
    for call in calls:
        if call.future.done():
            continue
        if call.error is None:
            call.future.set_result(call.result)
        else:
            call.future.set_exception(call.error)
