"""One PostgreSQL connection, with nested transactions, locks and errors in plain words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from typing import Any
from zlib import crc32

import psycopg
from psycopg import errors

from afterwit.errors import AlreadyRunning, StoreConflict, StoreError, StoreUnavailable
from afterwit.store.postgresql.connection import Link, Named, conninfo_of
from afterwit.store.sql.database import Database, inserting, marks

STORED = """
    SELECT ((SELECT coalesce(sum(pg_column_size(conversation) + pg_column_size(prompt_ids)
            + pg_column_size(ids) + pg_column_size(logprobs) + pg_column_size(message)), 0) FROM contents)
        + (SELECT coalesce(sum(pg_column_size(messages)), 0) FROM next_states))::bigint
        + (SELECT count(*) FROM turns) * ?
"""


ROW_BYTES = 1500
"""What a turn takes besides what was said and sampled: its narrow rows and ten entries of indexes."""


LEADING = 1
"""The advisory lock of the only learner. That of what must be alone is 0, those of names are below."""


class PostgresqlDatabase(Database):
    """Used by one thread at a time. Other processes use the same database.

    Transactions that write share one advisory lock, and lock the turns that they change, row by row; one that
    must be alone takes that lock for itself. Each statement sees what was committed before it.
    """

    LOCKED = " FOR UPDATE"
    UNLOCKED = " FOR UPDATE SKIP LOCKED"
    EACH = "CROSS JOIN LATERAL ({}) x"

    def __init__(self, link: Link, place: str) -> None:
        super().__init__(place)
        self._link = link
        self._depth = 0
        self._alone = self._together = False
        self._ended_by: StoreError | None = None
        """What made the server give up the transaction."""
        self._tells = False
        """Whether the transaction has news for those who listen."""
        self._leads: str | None = None
        """The lock that each new connection takes too."""
        self.number = 0
        """Tells this store's advisory locks from those of others in the database."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._depth:
            yield
            return
        with self._outermost(f"pg_advisory_xact_lock_shared({self.number}, 0)"):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        lock = f"pg_advisory_xact_lock({self.number}, 0)"
        if not self._depth:
            with self._outermost(lock):
                self._alone = True
                yield
            return
        if self._together and not self._alone:
            raise StoreConflict(f"{self.place}: this cannot be stored together with other calls")
        if not self._alone:
            self.rows(f"SELECT {lock}")
            self._alone = True
        yield

    @contextmanager
    def _outermost(self, lock: str) -> Iterator[None]:
        self._begin(f"BEGIN; SELECT {lock}")
        self._depth = 1
        try:
            yield
            self._commit()
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._depth, self._alone, self._tells, self._ended_by = 0, False, False, None

    def _begin(self, statements: str) -> None:
        """On a new connection if the old one was lost since the last transaction."""
        try:
            self._link.order(statements)
        except psycopg.Error as error:
            if not self._link.lost:
                self._roll_back()
                raise self._failed(error) from error
            self._reconnect()
            self._order(statements)

    def _commit(self) -> None:
        if self._ended_by is not None:
            raise self._ended_by
        if self._order(f"NOTIFY {self._channel}; COMMIT" if self._tells else "COMMIT") != "COMMIT":
            raise StoreError(
                f"{self.place}: a statement failed within the transaction: nothing of it is stored"
            )

    def _roll_back(self) -> None:
        with suppress(psycopg.Error):
            self._link.order("ROLLBACK")

    def _reconnect(self) -> None:
        try:
            self._link.again()
        except psycopg.Error as error:
            raise in_plain_words(error, self.place) from error
        if self._leads is not None:
            try:
                self._lead(self._leads)
            except AlreadyRunning as error:
                self._link.close()
                raise StoreUnavailable(f"the learner was cut off, and {error}") from error

    def _order(self, statements: str) -> str:
        try:
            return self._link.order(statements)
        except psycopg.Error as error:
            raise self._failed(error) from error

    @contextmanager
    def together(self) -> Iterator[None]:
        self._together = True
        try:
            with self.transaction():
                yield
        finally:
            self._together = False

    def hold(self, name: str) -> None:
        """A call that shares its transaction with others does not wait: it is made again by itself."""
        if not self._depth:
            return
        key = f"{self.number}, {number_of(name)}"
        if not self._together:
            self.rows(f"SELECT pg_advisory_xact_lock({key})")
        elif not self.rows(f"SELECT pg_try_advisory_xact_lock({key})")[0][0]:
            raise StoreConflict(f"{self.place}: another process holds {name}")

    @contextmanager
    def leading(self) -> Iterator[None]:
        key = f"{self.number}, {LEADING}"
        self._lead(key)
        self._leads = key
        try:
            yield
        finally:
            self._leads = None
            with suppress(StoreError):
                self.rows(f"SELECT pg_advisory_unlock({key})")

    def _lead(self, key: str) -> None:
        if not self.rows(f"SELECT pg_try_advisory_lock({key})")[0][0]:
            raise AlreadyRunning(f"another process learns over {self.place}: only one learner may run")

    def tell(self) -> None:
        self._tells = True

    def listening(self, heard: Callable[[], object]) -> AbstractContextManager[None]:
        return listening(self._link.url, self._channel, heard)

    @property
    def _channel(self) -> str:
        return f"afterwit_{self.number + 2**31}"

    def decided(self) -> int:
        if self._depth:
            return self._newest()
        with self.alone():
            return self._newest()

    def _newest(self) -> int:
        return int(self.rows("SELECT coalesce(max(seq), 0) FROM turns")[0][0])

    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        try:
            return self._link.execute(sql, values)
        except psycopg.Error as error:
            raise self._failed(error) from error

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Named]:
        try:
            return self._link.rows(sql, values)
        except psycopg.Error as error:
            if self._depth or not self._link.lost:
                raise self._failed(error) from error
        self._reconnect()
        return self.rows(sql, values)

    def add(self, row: Mapping[str, Any], beside: Mapping[str, Any]) -> int:
        return int(self.rows(_adding(tuple(row), tuple(beside)), (*row.values(), *beside.values()))[0][0])

    def _failed(self, error: psycopg.Error) -> StoreError:
        failure = in_plain_words(error, self.place)
        if self._depth and (self._link.lost or self._link.failed):
            self._ended_by = self._ended_by or failure
        return failure

    def size(self) -> int:
        """Reckoned from the values: a table keeps the room of deleted rows until the server's vacuum."""
        return int(self.rows(STORED, (ROW_BYTES,))[0][0])

    def turns_beyond(self, max_bytes: int) -> int:
        size = self.size()
        if size <= max_bytes:
            return 0
        turns = int(self.rows("SELECT count(*) FROM contents")[0][0])
        return max(1, turns * (size - max_bytes) // size)

    def wipe(self) -> None:
        """Left to the server's vacuum, which has its own time."""

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self._begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self._depth = 1
        try:
            yield
        finally:
            self._depth = 0
            self._roll_back()

    def columns(self, table: str) -> tuple[str, ...]:
        rows = self.rows(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum",
            (table,),
        )
        return tuple(row[0] for row in rows)

    def insert_many(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        try:
            self._link.repeat(inserting(table, tuple(columns)), rows)
        except psycopg.Error as error:
            raise self._failed(error) from error

    def number_on(self, table: str, column: str) -> None:
        self.rows(f"SELECT setval(pg_get_serial_sequence(?, ?), max({column})) FROM {table}", (table, column))

    def close(self) -> None:
        self._link.close()


def number_of(name: str) -> int:
    """The advisory lock of a name, negative: clients choose parts of names, and must not hit another lock."""
    return -1 - (crc32(name.encode()) >> 1)


@cache
def _adding(columns: tuple[str, ...], beside: tuple[str, ...]) -> str:
    """One statement for both rows of a turn."""
    return (
        f"WITH added AS ({inserting('turns', columns)} RETURNING seq)"
        f" INSERT INTO contents (seq, {', '.join(beside)}) SELECT seq, {marks(len(beside))} FROM added"
        " RETURNING seq"
    )


STOP_S = 0.25
"""Most seconds until the thread sees that it is to end."""


AGAIN_S = 2.0
"""Seconds until a lost connection is tried again. Stages ask by themselves meanwhile."""


@contextmanager
def listening(url: str, channel: str, heard: Callable[[], object]) -> Iterator[None]:
    """Call `heard`, in a thread of its own, at each notification while the body runs."""
    stop = threading.Event()
    thread = threading.Thread(
        target=_listen, args=(url, channel, heard, stop), name="store listens", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _listen(url: str, channel: str, heard: Callable[[], object], stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            with psycopg.connect(conninfo_of(url), autocommit=True) as connection:
                connection.execute(f"LISTEN {channel}")
                heard()  # what was said before is not told again
                while not stop.is_set():
                    for _ in connection.notifies(timeout=STOP_S, stop_after=1):
                        heard()
        except psycopg.Error:
            stop.wait(AGAIN_S)


CONFLICTS = (errors.DeadlockDetected, errors.SerializationFailure)


def in_plain_words(error: psycopg.Error, place: str) -> StoreError:
    """What went wrong and what to do about it; StoreUnavailable if it may pass."""
    said = " ".join(str(error).split())
    if isinstance(error, CONFLICTS):
        return StoreConflict(f"{place}: another process changes the same turns: {said}")
    if isinstance(error, errors.LockNotAvailable):
        return StoreUnavailable(f"{place} is held by another process for too long: {said}")
    if isinstance(error, errors.DiskFull):
        remedy = "Free some space on the server; what was stored stays stored."
        return StoreUnavailable(f"{place} could not be written: {said} {remedy}")
    if isinstance(error, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction):
        remedy = "Check what the user of store.url may do, and that the server is no standby."
        return StoreUnavailable(f"{place} cannot be written: {said} {remedy}")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnavailable(f"{place} does not answer: {said}")
    return StoreError(f"{place}: {said}")
