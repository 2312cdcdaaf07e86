"""One SQLite connection, with nested transactions and errors in plain words."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from afterwit.core.errors import StoreError, StoreUnavailable
from afterwit.store.sql.database import ALL, Database, inserting

BROKEN = (sqlite3.Error, UnicodeDecodeError)
"""What the library raises; the second, where its own words about a damaged schema are no text."""
NO_TEXT = "Could not decode to UTF-8"
"""How the library begins to say that a column of text is none."""


class SqliteDatabase(Database):
    """Used by one thread at a time. Other processes may open the same file.

    One transaction writes at a time, from its first statement on: nothing else has to be locked.
    """

    EACH = "JOIN turns x ON x.seq IN ({})"

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        super().__init__(str(path))
        self._connection = connection
        self._depth = 0
        self._ended_by: StoreError | None = None
        """Why SQLite itself ended the transaction: a full disk does."""
        self._log_to_empty = False
        self.path = path
        self._opened = _file_at(path)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._depth:
            yield
            return
        self._check_in_place()
        self.execute("BEGIN IMMEDIATE")
        self._depth += 1
        try:
            yield
            self._check_not_ended()
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._depth -= 1
            self._ended_by = None
        self._empty_log()

    def alone(self) -> AbstractContextManager[None]:
        return self.transaction()

    def together(self) -> AbstractContextManager[None]:
        return self.transaction()

    def hold(self, name: str) -> None:
        pass

    def leading(self) -> AbstractContextManager[None]:
        """The lock of the folder of versions beside the file says that already."""
        return nullcontext()

    def tell(self) -> None:
        """A file tells nobody: stages ask from time to time."""

    def listening(self, heard: Callable[[], object]) -> AbstractContextManager[None]:
        return nullcontext()

    def decided(self) -> int:
        return ALL

    def _check_not_ended(self) -> None:
        """Raises what ended the transaction early: nothing of it is stored, whichever part failed."""
        if self._ended_by is not None:
            raise self._ended_by

    def _check_in_place(self) -> None:
        """Raises StoreUnavailable if the file that is open stands elsewhere by now, or nowhere: SQLite would
        go on writing into it, and the next start would not find what was stored."""
        if self._opened is not None and _file_at(self.path) != self._opened:
            raise StoreUnavailable(
                f"{self.path} was moved, replaced or deleted while it is open: put it back, or stop what "
                "runs over it and start again"
            )

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

    def add(self, row: Mapping[str, Any], beside: Mapping[str, Any]) -> int:
        seq = self._run(inserting("turns", tuple(row)), tuple(row.values())).lastrowid or 0
        self.insert("contents", {"seq": seq, **beside})
        return seq

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
            self.rows(f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def turns_beyond(self, max_bytes: int) -> int:
        """A fixed number: the size is known exactly, so asking again is cheap beside removing turns."""
        return 32 if self.size() > max_bytes else 0

    def wipe(self) -> None:
        """Move the log into the file and empty it: it holds what was deleted.

        If another process still reads an older state, or the disk is full, a later call does it.
        """
        self._log_to_empty = True
        self._empty_log()

    def _empty_log(self) -> None:
        if self._log_to_empty and not self._depth:
            self._log_to_empty = False
            with suppress(StoreUnavailable):
                self.rows("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self.execute("BEGIN")
        try:
            yield
        finally:
            self._roll_back()

    def columns(self, table: str) -> tuple[str, ...]:
        return tuple(row["name"] for row in self.rows(f"PRAGMA table_info({table})"))

    def insert_many(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        try:
            self._connection.executemany(inserting(table, tuple(columns)), rows)
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def number_on(self, table: str, column: str) -> None:
        """The next number is that of the last row and one."""

    def copy_into(self, other: sqlite3.Connection) -> None:
        """Write all pages into another database, in one step: a reader, which no writer waits for."""
        self._connection.backup(other)

    def close(self) -> None:
        self._connection.close()


def _file_at(path: Path) -> tuple[int, int] | None:
    """Which file stands there; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def in_plain_words(error: Exception, path: Path) -> StoreError:
    """What went wrong with the file and what to do about it; StoreUnavailable if it may pass.

    Of text that is none only that is said: the error quotes it.
    """
    name = getattr(error, "sqlite_errorname", "")
    if isinstance(error, UnicodeDecodeError) or str(error).startswith(NO_TEXT):
        name, error = "SQLITE_CORRUPT", ValueError("a text in it is no UTF-8")
    if name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR"):
        remedy = "Free some disk space; what was stored stays stored."
        return StoreUnavailable(f"{path} could not be written: {error}. {remedy}")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreUnavailable(f"{path} is held by another process for too long: {error}.")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        remedy = "Check the permissions of the file and its folder."
        return StoreUnavailable(f"{path} cannot be opened for writing: {error}. {remedy}")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        remedy = "Restore it from a copy, or move it away to start a new store."
        return StoreError(f"{path} is damaged: {error}. {remedy}")
    return StoreError(f"{path}: {error}")
