"""A store for an event loop: calls run in a thread of its own, and share transactions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from queue import SimpleQueue
from typing import Any, TypeVar

from afterwit.errors import StoreConflict, StoreUnavailable
from afterwit.store.store import Store

T = TypeVar("T")

TRIES = 5
"""Attempts at a call that conflicts with another process."""

TOGETHER = 32
"""Most calls that share one transaction if they wait together: pages that several touch are written once."""


class _Signal(Enum):
    FLUSH = auto()
    """Deferred calls have waited long enough."""
    END = auto()
    """No more calls come."""


@dataclass(slots=True)
class _Call:
    work: Callable[[Store], Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    result: Any = None
    error: BaseException | None = None


class AsyncStore:
    """Runs calls one after the other, in the order they were made. Owns the store and closes it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: SimpleQueue[_Call | _Signal] = SimpleQueue()
        self._round: list[_Call] = []
        """Calls that one loop made in this iteration: they reach the thread together, and wake it once."""
        self._deferred: list[_Call] = []
        self._closing = False
        self._order = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    async def call(self, work: Callable[[Store], T]) -> T:
        """The result of `work`, stored by then. `work` must not return an iterator that still reads.

        It is called again if it shared a transaction with a call that failed; nothing of that is stored.
        Cancelling the caller does not undo the work. Raises StoreUnavailable after `close`.
        """
        call = self._call(work)
        with self._order:
            self._check_open()
            if self._round and self._round[0].loop is not call.loop:
                self._waiting.put(call)
            else:
                if not self._round:
                    call.loop.call_soon(self._end_round)
                self._round.append(call)
        answer: T = await call.future
        return answer

    def along(self, work: Callable[[Store], T], *, within_s: float) -> asyncio.Future[T]:
        """Run `work` in the next call's transaction, or alone after `within_s` seconds without a call.

        Use it if no caller waits: it costs no transaction and wakes no thread. `close` runs it. Otherwise as
        `call`. The future must be read.
        """
        call = self._call(work)
        with self._order:
            self._check_open()
            self._deferred.append(call)
        flush = call.loop.call_later(within_s, self._waiting.put, _Signal.FLUSH)
        call.future.add_done_callback(lambda _: flush.cancel())
        return call.future

    def _call(self, work: Callable[[Store], Any]) -> _Call:
        loop = asyncio.get_running_loop()
        return _Call(work, loop.create_future(), loop)

    def _check_open(self) -> None:
        if self._closing:
            raise StoreUnavailable("the store is closed")

    def _end_round(self) -> None:
        with self._order:
            self._hand_over()

    def _hand_over(self) -> None:
        for call in self._round:
            self._waiting.put(call)
        self._round = []

    async def close(self) -> None:
        """Finish the calls that were made, then close the store."""
        with self._order:
            self._closing = True
            self._hand_over()
            self._waiting.put(_Signal.END)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        ended = False
        while not ended:
            calls, ended = self._next()
            for call in calls if len(calls) <= 1 else _work_together(calls, self._store):
                _work(call, self._store)
            for loop in {call.loop for call in calls}:
                _deliver(loop, [call for call in calls if call.loop is loop])
        self._store.close()

    def _next(self) -> tuple[list[_Call], bool]:
        """Deferred calls and at most TOGETHER waiting ones; whether no more come."""
        calls, signal = list[_Call](), None
        while signal is None and len(calls) < TOGETHER and not (calls and self._waiting.empty()):
            item = self._waiting.get()
            if isinstance(item, _Signal):
                signal = item
            else:
                calls.append(item)
        with self._order:
            deferred, self._deferred = self._deferred, []
        return [*deferred, *calls], signal is _Signal.END


def _work_together(calls: list[_Call], store: Store) -> list[_Call]:
    """In one transaction. If a call fails, nothing of any is stored: returns the others, to be run alone."""
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


def _work(call: _Call, store: Store) -> None:
    """Alone; again after a conflict with another process."""
    for left in reversed(range(TRIES)):
        try:
            call.result, call.error = call.work(store), None
        except BaseException as error:  # for the caller, whatever it is
            call.error = error
            if isinstance(error, StoreConflict) and left:
                continue
        return


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
