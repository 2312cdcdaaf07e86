"""The store for an event loop: one writer thread in front of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from afterwit.core.errors import StoreError
from afterwit.store.port import Store

T = TypeVar("T")

TOGETHER = 32
"""Calls that share a transaction when they wait together: pages they both touch are written once."""


@dataclass(slots=True)
class _Call:
    """A call on its way: the work, where its answer goes, and the answer."""

    work: Callable[[Store], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    result: Any = None
    error: BaseException | None = None


class AsyncStore:
    """Calls run one after the other in the order they were made. Owns the store and closes it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: SimpleQueue[_Call | None] = SimpleQueue()
        """None is the last: no call comes after it."""
        self._closing = False
        self._order = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    async def call(self, work: Callable[[Store], T]) -> T:
        """What `work` returns, durable by then. It must not return an iterator that reads on.

        A caller that is cancelled while it waits does not undo the work.
        """
        loop = asyncio.get_running_loop()
        call = _Call(work, loop.create_future(), loop)
        with self._order:
            if self._closing:
                raise StoreError("the store is closed")
            self._waiting.put(call)
        answer: T = await call.future
        return answer

    async def close(self) -> None:
        """Finish what was called, then close the store."""
        with self._order:
            self._closing = True
            self._waiting.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while calls := self._next():
            self._perform(calls)
            for loop in {call.loop for call in calls}:
                _answer(loop, [call for call in calls if call.loop is loop])
        self._store.close()

    def _next(self) -> list[_Call]:
        """The calls that wait, at most TOGETHER; empty when there will be none."""
        calls = list[_Call]()
        while len(calls) < TOGETHER and not (calls and self._waiting.empty()):
            call = self._waiting.get()
            if call is None:
                self._waiting.put(None)
                break
            calls.append(call)
        return calls

    def _perform(self, calls: list[_Call]) -> None:
        if len(calls) == 1:
            _work(calls[0], self._store)
            return
        try:
            with self._store.transaction():
                for call in calls:
                    _work_apart(call, self._store)
        except BaseException as error:  # the commit failed: nothing any of them did is stored
            for call in calls:
                call.error = call.error or error


def _work(call: _Call, store: Store) -> None:
    try:
        call.result = call.work(store)
    except BaseException as error:  # belongs to the caller, whatever it is
        call.error = error


def _work_apart(call: _Call, store: Store) -> None:
    try:
        with store.savepoint():
            call.result = call.work(store)
    except BaseException as error:  # belongs to the caller, whatever it is
        call.error = error


def _answer(loop: asyncio.AbstractEventLoop, calls: list[_Call]) -> None:
    try:
        loop.call_soon_threadsafe(_settle, calls)
    except RuntimeError:  # the loop is gone, and with it everybody who asked
        return


def _settle(calls: list[_Call]) -> None:
    for call in calls:
        if call.future.done():
            continue
        if call.error is None:
            call.future.set_result(call.result)
        else:
            call.future.set_exception(call.error)
