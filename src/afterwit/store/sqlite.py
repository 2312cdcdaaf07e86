"""The store in one SQLite file."""

from __future__ import annotations

import os
import sqlite3
import struct
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from afterwit.errors import StoreError, StoreMismatch, StoreUnavailable
from afterwit.store.database import UNSTORABLE, Database, inserting, refuse_newer
from afterwit.store.schema import MIGRATIONS, Migrations
from afterwit.store.store import Store

SURVIVES_A_KILL = "NORMAL"
"""The `synchronous` mode that keeps what was written when a process is killed, not when the power fails."""

BROKEN = (sqlite3.Error, UnicodeDecodeError, *UNSTORABLE)
"""Errors of the library, and Python's: UnicodeDecodeError if a message about a damaged schema is not text."""

NO_TEXT = "Could not decode to UTF-8"
"""How its message about a text column that is not text begins."""

APPLICATION_ID = 0x4157_5754
"""Marks a file as ours ("AWWT"), in its header."""

BUSY_MS = 10_000
"""Milliseconds that a statement waits for another process's transaction, which takes a few."""

WAL_KEPT_BYTES = 64 * 2**20
"""The log file shrinks to this many bytes after a checkpoint."""

MAGIC = b"SQLite format 3\0"
WAL_MODE_AT, USER_VERSION_AT, APPLICATION_ID_AT, HEADER_BYTES = 18, 60, 68, 100
WAL_MODE = 2
"""Of the header's versions for writing and for reading."""

IN_WORDS: Mapping[tuple[str, ...], tuple[type[StoreError], str, str]] = {
    ("SQLITE_FULL", "SQLITE_IOERR"): (
        StoreUnavailable, "could not be written", "Free some disk space; what was stored stays stored.",
    ),
    ("SQLITE_BUSY", "SQLITE_LOCKED"): (StoreUnavailable, "is held by another process for too long", ""),
    ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"): (
        StoreUnavailable, "cannot be opened for writing", "Check the permissions of the file and its folder.",
    ),
    ("SQLITE_CORRUPT", "SQLITE_NOTADB"): (
        StoreError, "is damaged", "Restore it from a copy, or move it away to start a new store.",
    ),
}  # fmt: skip
"""By the beginnings of the library's names of errors: our error, the problem with the file, the remedy."""


class SqliteStore(Store):
    """One file in WAL mode. Several processes may open it."""

    _db: SqliteDatabase

    @classmethod
    def open(cls, path: Path, *, fingerprint: str | None, synchronous: str = SURVIVES_A_KILL) -> Self:
        """Open or create the store. `fingerprint` is that of its tokenizer and base weights; None: any store.

        `synchronous`: what was written survives a killed process with "NORMAL", and a power loss too with
        "FULL". Raises StoreMismatch for a newer schema, another fingerprint or a foreign file, which stay
        untouched.
        """
        return cls(open_file(path, fingerprint=fingerprint, synchronous=synchronous))

    def copy_to(self, path: Path) -> None:
        path.touch(mode=0o600)
        try:
            with closing(sqlite3.connect(path)) as copy:
                self._db.backup(copy)
        except sqlite3.Error as error:
            raise in_plain_words(error, path) from error


class SqliteDatabase(Database):
    """One transaction writes at a time, from its first statement on, so nothing else has to be locked.
    Stages poll a file: no one is notified."""

    SNAPSHOT = "BEGIN"
    OTHERWISE = "name another --home"
    EACH = "JOIN turns x ON x.seq IN ({})"
    _beginning = "BEGIN IMMEDIATE"

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        super().__init__(str(path))
        self._connection = connection
        self._log_to_empty = False
        self.path = path
        self._opened = _file_at(path)

    def _begin(self, statements: str) -> None:
        """Raises StoreUnavailable if the open file was moved or deleted: SQLite would go on writing into it,
        and the next start would not find what was stored."""
        if self._opened is not None and _file_at(self.path) != self._opened:
            raise StoreUnavailable(
                f"{self.path} was moved, replaced or deleted while it is open: put it back, or stop what "
                "runs over it and start again"
            )
        self.execute(statements)

    def _commit(self) -> None:
        self.execute("COMMIT")

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        return self._run(sql, values).rowcount

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        cursor = self._run(sql, values)
        try:
            return cursor.fetchall()
        except BROKEN as error:  # SQLite reads as rows are fetched
            raise self._failed(error) from error

    def add(self, turn: Mapping[str, Any], content: Mapping[str, Any]) -> int:
        seq = self._run(inserting("turns", tuple(turn)), tuple(turn.values())).lastrowid or 0
        self.insert("contents", {"seq": seq, **content})
        return seq

    def insert_many(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        try:
            self._connection.executemany(inserting(table, tuple(columns)), rows)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _run(self, sql: str, values: Sequence[Any]) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, values)
        except BROKEN as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> StoreError:
        failure = in_plain_words(error, self.path)
        if self._depth and not self._connection.in_transaction:
            self._ended_by = self._ended_by or failure
        return failure

    def size(self) -> int:
        """The file's pages without the free ones."""
        pages, free, size = (
            self.value(f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def turns_beyond(self, max_bytes: int) -> int:
        """A fixed number, because the exact size is cheap to read again after each batch."""
        return 32 if self.size() > max_bytes else 0

    def wipe(self) -> None:
        """Move the log into the file and empty it: it holds what was deleted.

        If another process still reads an older state, or the disk is full, a later call does it.
        """
        self._log_to_empty = True
        self._ended()

    def _ended(self) -> None:
        if self._log_to_empty and not self._depth:
            self._log_to_empty = False
            with suppress(StoreUnavailable):
                self.rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def backup(self, other: sqlite3.Connection) -> None:
        """Write all pages into another database, in one step. No writer waits for it."""
        self._connection.backup(other)

    def close(self) -> None:
        self._connection.close()


def _file_at(path: Path) -> tuple[int, int] | None:
    """The identity of the file at a path; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def in_plain_words(error: Exception, path: Path) -> StoreError:
    """The problem with the file and its remedy; StoreUnavailable if it may pass.

    Damaged text is not quoted, as the library's own message would: it may be of a conversation.
    """
    name = getattr(error, "sqlite_errorname", "")
    if isinstance(error, UnicodeDecodeError) or str(error).startswith(NO_TEXT):
        name, error = "SQLITE_CORRUPT", ValueError("a text in it is not UTF-8")
    for beginnings, (kind, problem, remedy) in IN_WORDS.items():
        if name.startswith(beginnings):
            return kind(f"{path} {problem}: {error}. {remedy}".rstrip())
    return StoreError(f"{path}: {error}")


def open_file(
    path: Path,
    *,
    fingerprint: str | None,
    synchronous: str = SURVIVES_A_KILL,
    migrations: Migrations = MIGRATIONS,
) -> SqliteDatabase:
    """Open the store at `path`, created if missing; `fingerprint` is its model's (None: any model's).

    Raises StoreMismatch for a newer schema, another fingerprint or a file that is not a store, StoreError if
    the disk or the permissions do not allow it. The file is untouched then.
    """
    try:
        if not path.exists():
            _create(path, migrations)
        _check_header(path, len(migrations))
        database = SqliteDatabase(connect(path, synchronous), path)
    except BROKEN as error:
        raise in_plain_words(error, path) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error.strerror}.") from error
    try:
        refuse_newer(path, schema_of(database), len(migrations))  # after a crash the log may be newer
        database.refuse_another(fingerprint)
        migrate(database, migrations)
    except BaseException:
        database.close()
        raise
    return database


def _create(path: Path, migrations: Migrations) -> None:
    """Write the file next to its place, then link it in: never half a store; of two creators one wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    draft = Path(name)
    try:
        with open(handle, "wb") as file:
            file.write(_empty(migrations))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    except OSError as error:
        raise StoreUnavailable(f"{path} could not be written: {error.strerror}.") from error
    finally:
        draft.unlink()


@lru_cache(maxsize=1)
def _empty(migrations: Migrations) -> bytes:
    """The file of a store that holds nothing yet, in WAL mode."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        migrate(SqliteDatabase(connection, Path(":memory:")), migrations)
        file = bytearray(connection.serialize())
    file[WAL_MODE_AT] = file[WAL_MODE_AT + 1] = WAL_MODE  # a database in memory has no log
    return bytes(file)


def _check_header(path: Path, newest: int) -> None:
    """Refuse a foreign or newer file by its header, before SQLite opens it."""
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        raise StoreMismatch(f"{path} is not an Afterwit store. Move it away, or name another --home.")
    if struct.unpack_from(">I", header, APPLICATION_ID_AT) != (APPLICATION_ID,):
        raise StoreMismatch(f"{path} is another program's SQLite file. Move it away, or name another --home.")
    (schema,) = struct.unpack_from(">I", header, USER_VERSION_AT)
    refuse_newer(path, schema, newest)


def connect(path: Path, synchronous: str) -> sqlite3.Connection:
    """A connection to an existing store, unchecked."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    connection.row_factory = sqlite3.Row
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
    connection.execute("PRAGMA secure_delete = ON")  # free pages must not hold pruned content
    return connection


def schema_of(database: SqliteDatabase) -> int:
    return int(database.value("PRAGMA user_version"))


def migrate(database: SqliteDatabase, migrations: Migrations) -> None:
    """Bring the schema to the newest version: all steps or none."""
    if schema_of(database) == len(migrations):
        return
    with database.transaction():
        for statements in migrations[schema_of(database) :]:
            for statement in statements:
                database.execute(statement)
        database.execute(f"PRAGMA user_version = {len(migrations)}")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
