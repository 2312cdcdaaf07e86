"""The store, where the stages meet: turns, next states, verdicts, versions, leases, orders, keys, health.

`AsyncStore` runs one for an event loop: calls run in a thread of its own, and share transactions.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from afterwit.errors import StoreConflict, StoreError, StoreMismatch, StoreUnavailable
from afterwit.store.browsing import Browsing
from afterwit.store.database import Database, Row
from afterwit.store.lessons import Lessons
from afterwit.store.promotion import Promotion
from afterwit.store.schema import TABLES
from afterwit.store.upkeep import Upkeep
from afterwit.store.work import Work

COPIED_ROWS = 256
"""Numbers read at once."""

SCHEMA_KEY = "schema"
"""Of `meta`: the database's own."""


class Store(Lessons, Work, Promotion, Upkeep, Browsing, ABC):
    """The whole store. Each method is one transaction, stored whole or not at all.

    The writes of a method survive a killed process as soon as it returns; whether they survive a power loss
    is the database's own setting. A store is used by one thread at a time; other threads and processes open
    their own.

    Raises StoreUnavailable if the database cannot read or write now, and StoreError if it refuses the call.
    In both cases nothing of the call is stored.
    """

    def bind(self, fingerprint: str) -> None:
        """From now on only this fingerprint opens the store. StoreMismatch if it is bound to another."""
        with self._db.transaction():
            self._db.execute(
                "INSERT INTO meta VALUES ('fingerprint', ?) ON CONFLICT DO NOTHING", (fingerprint,)
            )
            self._db.refuse_another(fingerprint)

    def transaction(self) -> AbstractContextManager[None]:
        """Several calls as one, stored whole or not at all. An inner transaction joins the outer one."""
        return self._db.transaction()

    def together(self) -> AbstractContextManager[None]:
        """A transaction of several callers' calls. One that would wait for another process, or must be alone,
        raises StoreConflict instead: then nothing of any call is stored, and each can be made by itself."""
        return self._db.together()

    @abstractmethod
    def copy_to(self, path: Path) -> None:
        """For backups: write all that is stored into the new file `path`, which is a SQLite store.

        Others go on reading and writing. What they commit meanwhile is in the copy whole or not at all.
        Raises StoreUnavailable if the disk is full.
        """

    def copy_into(self, other: Store) -> int:
        """Write all that is stored into another store, which is empty and may use another database; returns
        the number of turns.

        Everything is stored there, or nothing. Raises StoreError if the other store is not empty,
        StoreMismatch if it belongs to another model.
        """
        return copy_rows(self._db, other._db)

    def close(self) -> None:
        """Close the connection. Nothing may be called afterwards."""
        self._db.close()


def copy_rows(source: Database, target: Database) -> int:
    """Copy all rows as of one moment of the source; returns the number of turns. See `Store.copy_into`."""
    with source.snapshot(), target.alone():
        for table in TABLES:
            if target.row(f"SELECT 1 FROM {table} LIMIT 1") is not None:
                raise StoreError(f"{target.place} is not empty: its {table} would be mixed with others")
        there = {row["key"]: row["value"] for row in target.rows("SELECT * FROM meta")}
        for row in source.rows("SELECT * FROM meta WHERE key <> ?", (SCHEMA_KEY,)):
            if there.get(row["key"], row["value"]) != row["value"]:
                raise StoreMismatch(
                    f"{target.place} belongs to another model or tokenizer than {source.place}"
                )
            target.put("meta", {"key": row["key"], "value": row["value"]}, key="key")
        for table, key in TABLES.items():
            for rows in _pages(source, table, key):
                target.insert_many(table, tuple(rows[0].keys()), [tuple(row) for row in rows])
            has, had = (each.value(f"SELECT count(*) FROM {table}") for each in (target, source))
            if has != had:
                raise StoreError(f"{target.place} got {has} rows of {table}, and {source.place} has {had}")
            if key is not None:
                target.number_on(table, key)
        return int(target.value("SELECT count(*) FROM turns"))


def _pages(source: Database, table: str, key: str | None) -> Iterator[Sequence[Row]]:
    """The rows of a table, by ranges of `key`; all at once without one."""
    select = f"SELECT * FROM {table}"
    if key is None:
        first, last, where = 0, 0, ""
    else:
        first, last = source.rows(f"SELECT coalesce(min({key}), 0), coalesce(max({key}), -1) FROM {table}")[0]
        where = f" WHERE {key} >= ? AND {key} < ? ORDER BY {key}"
    for start in range(first, last + 1, COPIED_ROWS):
        if rows := source.rows(select + where, (start, start + COPIED_ROWS) if where else ()):
            yield rows


T = TypeVar("T")

TRIES = 5
"""Attempts at a call that conflicts with another process."""

TOGETHER = 32
"""Most calls that share one transaction if they wait together: pages that several touch are written once."""


@dataclass(slots=True, eq=False)
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
        self._waiting: SimpleQueue[_Call | None] = SimpleQueue()
        """None: deferred calls have waited long enough, or no more calls come."""
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
        call = self._new(work)
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
        call = self._new(work)
        with self._order:
            self._check_open()
            self._deferred.append(call)
        timer = call.loop.call_later(within_s, self._end_waiting, call)
        call.future.add_done_callback(lambda _: timer.cancel())
        return call.future

    def _new(self, work: Callable[[Store], Any]) -> _Call:
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

    def _end_waiting(self, call: _Call) -> None:
        with self._order:
            if call in self._deferred:  # it stays: after the calls that wait by now it would come too late
                self._waiting.put(None)

    async def close(self) -> None:
        """Finish the calls that were made, then close the store."""
        with self._order:
            self._closing = True
            self._hand_over()
            self._waiting.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        """Waits for calls, and runs at most TOGETHER of these and all deferred ones as one."""
        ended = False
        while not ended:
            calls = list[_Call]()
            while len(calls) < TOGETHER and not (calls and self._waiting.empty()):
                if (call := self._waiting.get()) is None:
                    break
                calls.append(call)
            with self._order:
                calls, self._deferred = [*self._deferred, *calls], []
                ended = self._closing and self._waiting.empty()
            for call in calls if len(calls) <= 1 else _work_together(calls, self._store):
                _work(call, self._store)
            for loop in {call.loop for call in calls}:
                with suppress(RuntimeError):  # the loop is gone, and the callers with it
                    loop.call_soon_threadsafe(_resolve, [call for call in calls if call.loop is loop])
        self._store.close()


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


def _resolve(calls: Sequence[_Call]) -> None:
    for call in (call for call in calls if not call.future.done()):
        if call.error is None:
            call.future.set_result(call.result)
        else:
            call.future.set_exception(call.error)
