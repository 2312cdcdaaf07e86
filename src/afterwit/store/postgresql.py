"""The store in one schema of a PostgreSQL database."""

from __future__ import annotations

import platform
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Self, cast
from zlib import crc32

import psycopg
from psycopg import Connection, errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import StrDumper

from afterwit.errors import (
    AlreadyRunning,
    SettingError,
    StoreConflict,
    StoreError,
    StoreMismatch,
    StoreUnavailable,
)
from afterwit.store.database import Database, bind_model, inserting, marks
from afterwit.store.schema import MIGRATIONS
from afterwit.store.sqlite import open_database as open_file
from afterwit.store.store import SCHEMA_KEY, Store, copy_rows

Migrations = Sequence[Sequence[str]]


class PostgresqlStore(Store):
    """Processes on any machine may open it."""

    _database: PostgresqlDatabase

    @classmethod
    def open(cls, url: str, *, fingerprint: str | None, machine: str | None = None) -> Self:
        """Open or create the store at `postgresql://...`, as libpq reads it.

        `fingerprint` binds it to tokenizer and base weights; None: any store. `machine` is this one's name
        among those that use the store; None: the name of the host. What was written survives a killed client
        and, as far as the server's `synchronous_commit` guarantees it, a killed server and a power loss.
        Raises StoreMismatch for a newer schema, another fingerprint or foreign tables, which stay untouched.
        """
        database = open_database(url, fingerprint=fingerprint)
        database.machine = platform.node() if machine is None else machine
        return cls(database)

    @staticmethod
    def exists(url: str) -> bool:
        """Whether a store was made at `url`. Raises what `open` raises."""
        with closing(_connect(url)) as database:
            return schema_of(database) > 0

    def copy_to(self, path: Path) -> None:
        with closing(open_file(path, fingerprint=None)) as copy:
            copy_rows(self._database, copy)


OLDEST_SERVER = 14

MIGRATION = 0x4157_5754
"""The advisory lock of processes that make or migrate a store."""

TABLES = """
    SELECT tablename FROM pg_tables
    WHERE schemaname = ANY (current_schemas(false)) AND tablename IN ('meta', 'turns')
"""
"""Asks the catalogue itself: a connection's cache may be older than the lock that it waited for."""


def open_database(
    url: str, *, fingerprint: str | None, migrations: Migrations = MIGRATIONS
) -> PostgresqlDatabase:
    """Open the store at `url`, made if its schema is empty, and bound to `fingerprint` (None: any model's).

    Raises StoreMismatch for a newer schema, another fingerprint or tables that are not a store's, which stay
    untouched; StoreUnavailable if the server does not answer; StoreError if it is too old or not UTF-8.
    """
    database = _connect(url)
    try:
        _check_server(database)
        _migrate(database, migrations)
        database.number = int(database.rows("SELECT 'meta'::regclass::oid::bigint")[0][0]) - 2**31
        bind_model(database, fingerprint, otherwise="name another store.url")
    except BaseException:
        database.close()
        raise
    return database


def _connect(url: str) -> PostgresqlDatabase:
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise SettingError(f"store.url cannot be read: {str(error).strip()}") from error
    host, port = parts.get("host") or "", parts.get("port")
    place = f"postgresql://{host}{f':{port}' if port else ''}/{parts.get('dbname') or ''}"  # without secrets
    try:
        return PostgresqlDatabase(Link(url), place)
    except psycopg.Error as error:
        raise in_plain_words(error, place) from error


def _check_server(database: PostgresqlDatabase) -> None:
    ((version, encoding),) = database.rows(
        "SELECT current_setting('server_version_num')::bigint / 10000, current_setting('server_encoding')"
    )
    if version < OLDEST_SERVER:
        raise StoreError(
            f"{database.place} runs PostgreSQL {version}; {OLDEST_SERVER} is the oldest that will do"
        )
    if encoding != "UTF8":
        raise StoreError(f"{database.place} is encoded as {encoding}: CREATE DATABASE ... ENCODING 'UTF8'")


def schema_of(database: PostgresqlDatabase) -> int:
    """The version of the store's schema; 0 if there is none. Raises StoreMismatch for tables of others."""
    tables = {row["tablename"] for row in database.rows(TABLES)}
    if not tables:
        return 0
    row = database.row("SELECT value FROM meta WHERE key = ?", (SCHEMA_KEY,)) if len(tables) == 2 else None
    if row is None:
        raise StoreMismatch(
            f"{database.place} holds another program's tables. Name another database, or a schema of its own."
        )
    return int(row["value"])


def _migrate(database: PostgresqlDatabase, migrations: Migrations) -> None:
    """Bring the schema to the newest version: all steps or none, one process at a time."""
    newest = len(migrations)
    if (schema := schema_of(database)) == newest:
        return
    if schema > newest:
        raise StoreMismatch(
            f"{database.place} has schema {schema}; this Afterwit knows {newest} at most."
            " Install a newer Afterwit."
        )
    database.number = MIGRATION
    with database.alone():
        for statements in migrations[schema_of(database) :]:  # another process may have been first
            for statement in statements:
                database.execute(TYPE.sub(lambda found: TYPES[found[0]], statement))
        database.put("meta", {"key": SCHEMA_KEY, "value": str(newest)}, key="key")


TYPES = {
    r"INTEGER PRIMARY KEY": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    r"INTEGER": "BIGINT",
    r"REAL": "DOUBLE PRECISION",
    r"BLOB": "BYTEA",
    r"TEXT": 'TEXT COLLATE "C"',
    r"WITHOUT ROWID": "",
}
"""As in SQLite, integers have eight bytes, numbers are doubles, and texts sort by their bytes."""

TYPE = re.compile("|".join(rf"\b{name}\b" for name in TYPES))

STORED = """
    SELECT ((SELECT coalesce(sum(pg_column_size(conversation) + pg_column_size(prompt_ids)
            + pg_column_size(ids) + pg_column_size(logprobs) + pg_column_size(message)), 0) FROM contents)
        + (SELECT coalesce(sum(pg_column_size(messages)), 0) FROM next_states))::bigint
        + (SELECT count(*) FROM turns) * ?
"""

ROW_BYTES = 1500
"""Of a turn's narrow rows and its ten index entries."""

LEADING = 1
"""The advisory lock of the only learner. That of `alone` is 0, those of names are negative."""


class PostgresqlDatabase(Database):
    """Transactions that write share one advisory lock, and lock the turns that they change, row by row; one
    that must be alone takes that lock exclusively. Each statement sees what was committed before it."""

    FOR_UPDATE = " FOR UPDATE"
    SKIP_LOCKED = " FOR UPDATE SKIP LOCKED"
    EACH = "CROSS JOIN LATERAL ({}) x"

    def __init__(self, link: Link, place: str) -> None:
        super().__init__(place)
        self._link = link
        self._depth = 0
        self._alone = self._together = self._notifies = False
        self._ended_by: StoreError | None = None
        """Why the server aborted the transaction."""
        self._leads: str | None = None
        """The lock that each new connection takes too."""
        self.number = 0
        """Distinguishes this store's advisory locks from those of others in the database."""

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
    def together(self) -> Iterator[None]:
        self._together = True
        try:
            with self.transaction():
                yield
        finally:
            self._together = False

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
            self._depth, self._alone, self._notifies, self._ended_by = 0, False, False, None

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
        if self._order(f"NOTIFY {self._channel}; COMMIT" if self._notifies else "COMMIT") != "COMMIT":
            raise StoreError(
                f"{self.place}: a statement failed within the transaction: nothing of it is stored"
            )

    def _roll_back(self) -> None:
        with suppress(psycopg.Error):
            self._link.order("ROLLBACK")

    def _order(self, statements: str) -> str:
        try:
            return self._link.order(statements)
        except psycopg.Error as error:
            raise self._failed(error) from error

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

    def hold(self, name: str) -> None:
        """In a transaction of several callers, raise StoreConflict instead of waiting."""
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

    def notify(self) -> None:
        self._notifies = True

    def listening(self, notified: Callable[[], object]) -> AbstractContextManager[None]:
        return listening(self._link.url, self._channel, notified)

    @property
    def _channel(self) -> str:
        return f"afterwit_{self.number + 2**31}"

    def settled(self) -> int:
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

    def add(self, turn: Mapping[str, Any], content: Mapping[str, Any]) -> int:
        sql = _adding(tuple(turn), tuple(content))
        return int(self.rows(sql, (*turn.values(), *content.values()))[0][0])

    def _failed(self, error: psycopg.Error) -> StoreError:
        failure = in_plain_words(error, self.place)
        if self._depth and (self._link.lost or self._link.failed):
            self._ended_by = self._ended_by or failure
        return failure

    def size(self) -> int:
        """Summed over the values: a table keeps the room of deleted rows until the server's vacuum."""
        return int(self.rows(STORED, (ROW_BYTES,))[0][0])

    def turns_beyond(self, max_bytes: int) -> int:
        size = self.size()
        if size <= max_bytes:
            return 0
        turns = int(self.rows("SELECT count(*) FROM contents")[0][0])
        return max(1, turns * (size - max_bytes) // size)

    def wipe(self) -> None:
        """Left to the server's vacuum, on its own schedule."""

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
def _adding(turn: tuple[str, ...], content: tuple[str, ...]) -> str:
    """One statement for both rows of a turn."""
    return (
        f"WITH added AS ({inserting('turns', turn)} RETURNING seq)"
        f" INSERT INTO contents (seq, {', '.join(content)}) SELECT seq, {marks(len(content))} FROM added"
        " RETURNING seq"
    )


STOP_S = 0.25
"""Longest time until the thread notices that it is to end."""

AGAIN_S = 2.0
"""Seconds until a lost connection is tried again. Stages poll meanwhile."""


@contextmanager
def listening(url: str, channel: str, notified: Callable[[], object]) -> Iterator[None]:
    """Call `notified`, in a thread of its own, at each notification while the body runs."""
    stop = threading.Event()
    thread = threading.Thread(
        target=_listen, args=(url, channel, notified, stop), name="store listens", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _listen(url: str, channel: str, notified: Callable[[], object], stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            with psycopg.connect(conninfo_of(url), autocommit=True) as connection:
                connection.execute(f"LISTEN {channel}")
                notified()  # earlier notifications are not repeated
                while not stop.is_set():
                    for _ in connection.notifies(timeout=STOP_S, stop_after=1):
                        notified()
        except psycopg.Error:
            stop.wait(AGAIN_S)


CONFLICTS = (errors.DeadlockDetected, errors.SerializationFailure)


def in_plain_words(error: psycopg.Error, place: str) -> StoreError:
    """The problem and its remedy; StoreUnavailable if it may pass."""
    text = " ".join(str(error).split())
    if isinstance(error, CONFLICTS):
        return StoreConflict(f"{place}: another process changes the same turns: {text}")
    if isinstance(error, errors.LockNotAvailable):
        return StoreUnavailable(f"{place} is held by another process for too long: {text}")
    if isinstance(error, errors.DiskFull):
        remedy = "Free some space on the server; what was stored stays stored."
        return StoreUnavailable(f"{place} could not be written: {text} {remedy}")
    if isinstance(error, errors.InsufficientPrivilege | errors.ReadOnlySqlTransaction):
        remedy = "Check what the user of store.url may do, and that the server is no standby."
        return StoreUnavailable(f"{place} cannot be written: {text} {remedy}")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnavailable(f"{place} does not answer: {text}")
    return StoreError(f"{place}: {text}")


DEFAULTS: Mapping[str, str] = {
    "application_name": "afterwit",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "tcp_user_timeout": "30000",
}
"""Of libpq; the URL overrides them. A server that went silent is given up after 30 seconds."""

SESSION = (
    "SET client_encoding = 'UTF8'; SET default_transaction_isolation = 'read committed';"
    " SET default_transaction_read_only = off; SET lock_timeout = '10s';"
    " SET idle_in_transaction_session_timeout = '60s'; SET jit = off"
)
"""A statement waits ten seconds for another process's transaction, as with SQLite. A process that
stands still within a transaction for a minute loses it."""


def conninfo_of(url: str) -> str:
    """The URL with the defaults for what it leaves out."""
    parts = conninfo_to_dict(url)
    return make_conninfo(url, **{name: value for name, value in DEFAULTS.items() if name not in parts})


class Link:
    """A connection that can be made again. Raises what psycopg raises."""

    def __init__(self, url: str) -> None:
        self.url, self._conninfo = url, conninfo_of(url)
        self._places: dict[str, tuple[int, dict[str, int]]] = {}
        """Of each statement, how many values a row has, and the position of each name's."""
        self._connect()

    def _connect(self) -> None:
        self._connection: Connection[Any] = psycopg.connect(
            self._conninfo, autocommit=True, cursor_factory=psycopg.RawCursor[Any]
        )
        for kind in (int, bool):  # booleans are 1 and 0, integers have eight bytes: one prepared statement
            self._connection.adapters.register_dumper(kind, Int8BinaryDumper)
        self._connection.adapters.register_dumper(str, Text)
        self._cursor = self._connection.cursor(binary=True)
        self.order(SESSION)

    @property
    def lost(self) -> bool:
        return self._connection.closed

    @property
    def failed(self) -> bool:
        """Whether a statement failed within the open transaction: no other can follow."""
        return self._connection.info.transaction_status is TransactionStatus.INERROR

    def again(self) -> None:
        """Make a new connection."""
        self.close()
        self._connect()

    def order(self, statements: str) -> str:
        """Run statements without values in one round trip; returns the last one's tag, such as `COMMIT`."""
        connection = self._connection.pgconn
        result = connection.exec_(statements.encode())
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            error = psycopg.errors.error_from_result(result, encoding="utf-8")
            if connection.status is ConnStatus.OK:
                raise error
            self._connection.close()
            raise psycopg.OperationalError(str(error))
        return (result.command_status or b"").decode()

    def execute(self, sql: str, values: Sequence[Any]) -> int:
        return self._cursor.execute(query(sql), values).rowcount

    def rows(self, sql: str, values: Sequence[Any]) -> list[Named]:
        cursor = self._cursor.execute(query(sql), values)
        found = cast(list[tuple[Any, ...]], cursor.fetchall())
        if not found:
            return []
        width, places = self._places.get(sql, (0, {}))
        if len(found[0]) != width:
            names = [column.name for column in cursor.description or ()]
            # of equal names the first counts, as in SQLite
            places = {name: len(names) - 1 - back for back, name in enumerate(reversed(names))}
            self._places[sql] = (len(names), places)
        return [Named(places, values) for values in found]

    def repeat(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        """Run one statement with each of these values, without waiting for each answer."""
        self._cursor.executemany(query(sql), values)

    def close(self) -> None:
        self._connection.close()


NUL, SHOWN = "\0", "\N{SYMBOL FOR NULL}"


class Text(StrDumper):
    """PostgreSQL's text cannot hold NUL: its symbol is stored instead."""

    def dump(self, obj: str) -> bytes | bytearray | memoryview | None:
        return super().dump(obj.replace(NUL, SHOWN))


class Named:
    """A row's values, by name or by position."""

    __slots__ = ("_places", "_values")

    def __init__(self, places: Mapping[str, int], values: Sequence[Any]) -> None:
        self._places, self._values = places, values

    def __getitem__(self, key: str | int) -> Any:
        return self._values[self._places[key] if isinstance(key, str) else key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)


@cache
def query(sql: str) -> bytes:
    """With PostgreSQL's numbered placeholders: `?` becomes `$1`, `$2`, ..."""
    numbers = count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql).encode()
