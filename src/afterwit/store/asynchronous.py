"""A store for an event loop, behind a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from queue import SimpleQueue
from typing import Any, TypeVar

from afterwit.errors import StoreConflict, StoreUnavailable
from afterwit.store.port import Store

T = TypeVar("T")

TRIES = 5
"""Times that a call is made whose way another process crosses."""

TOGETHER = 32
"""Most calls that share one transaction if they wait together: pages that several touch are written once."""


class _Signal(Enum):
    """What the thread is told beside the calls."""

    NUDGE = auto()
    """Work that rides along has waited for long enough."""
    END = auto()
    """No more calls come."""


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
        self._waiting: SimpleQueue[_Call | _Signal] = SimpleQueue()
        self._gathered: list[_Call] = []
        """What one loop called for in this round."""
        self._riding: list[_Call] = []
        """What is done with the next call."""
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
            self._hand_over_soon(call)
        answer: T = await call.future
        return answer

    def along(self, work: Callable[[Store], T], *, within_s: float) -> asyncio.Future[T]:
        """Have `work` done just before the next call, in its transaction; by itself if none comes in time.

        For what nobody waits for: it has no transaction of its own and wakes no thread. `close` has it done.
        Else as `call`. The future must be read.
        """
        loop = asyncio.get_running_loop()
        call = _Call(work, loop.create_future(), loop)
        with self._order:
            if self._closing:
                raise StoreUnavailable("the store is closed")
            self._riding.append(call)
        nudge = loop.call_later(within_s, self._waiting.put, _Signal.NUDGE)
        call.future.add_done_callback(lambda _: nudge.cancel())
        return call.future

    def _hand_over_soon(self, call: _Call) -> None:
        """Calls that a loop makes in one round reach the thread together: they wake it once."""
        if self._gathered and self._gathered[0].loop is not call.loop:
            self._waiting.put(call)
            return
        if not self._gathered:
            call.loop.call_soon(self._hand_over)
        self._gathered.append(call)

    def _hand_over(self) -> None:
        with self._order:
            self._release()

    def _release(self) -> None:
        for call in self._gathered:
            self._waiting.put(call)
        self._gathered = []

    async def close(self) -> None:
        """Finish the calls that were made, then close the store."""
        with self._order:
            self._closing = True
            self._release()
            self._waiting.put(_Signal.END)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        ended = False
        while not ended:
            calls, ended = self._next()
            self._perform(calls)
            for loop in {call.loop for call in calls}:
                _deliver(loop, [call for call in calls if call.loop is loop])
        self._store.close()

    def _next(self) -> tuple[list[_Call], bool]:
        """The calls that wait, at most TOGETHER and what rides along; whether no more come."""
        calls, signal = list[_Call](), None
        while signal is None and len(calls) < TOGETHER and not (calls and self._waiting.empty()):
            come = self._waiting.get()
            if isinstance(come, _Signal):
                signal = come
            else:
                calls.append(come)
        with self._order:
            riding, self._riding = self._riding, []
        return [*riding, *calls], signal is _Signal.END

    def _perform(self, calls: list[_Call]) -> None:
        for call in calls if len(calls) <= 1 else _work_together(calls, self._store):
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
