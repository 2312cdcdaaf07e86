"""One SQLite connection: transactions that nest, and errors in plain words."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from afterwit.core.errors import StoreError


class Database:
    """Used by one thread at a time. Other processes may hold one of the same file."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._depth = 0
        self.path = path

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. An inner transaction joins the outer one, and its failure is the outer one's."""
        if self._depth:
            yield
            return
        self.execute("BEGIN IMMEDIATE")
        self._depth += 1
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._depth -= 1

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of a transaction; its failure leaves the rest standing. Raises StoreError outside of one."""
        if not self._connection.in_transaction:  # SQLite itself ends a transaction when the disk is full
            raise StoreError(f"{self.path}: the transaction ended before this part of it")
        self.execute("SAVEPOINT part")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:
                self.execute("ROLLBACK TO part")
            raise
        finally:
            if self._connection.in_transaction:
                self.execute("RELEASE part")

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def execute(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> sqlite3.Cursor:
        """Raises StoreError in words for the person who runs the machine."""
        try:
            return self._connection.execute(sql, values)
        except sqlite3.Error as error:
            raise StoreError(in_plain_words(error, self.path)) from error

    def rows(self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[sqlite3.Row]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(in_plain_words(error, self.path)) from error

    def row(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Row | None:
        found = self.rows(sql, values)
        return found[0] if found else None

    def insert(self, table: str, row: Mapping[str, Any], *, replace: bool = False) -> int:
        """The new row's number."""
        cursor = self.execute(_insert(table, tuple(row), replace), tuple(row.values()))
        return cursor.lastrowid or 0

    def close(self) -> None:
        self._connection.close()


@cache
def _insert(table: str, columns: tuple[str, ...], replace: bool) -> str:
    verb = "REPLACE" if replace else "INSERT"
    return f"{verb} INTO {table} ({', '.join(columns)}) VALUES ({marks(len(columns))})"


def marks(count: int) -> str:
    """`?, ?, ...`"""
    return ", ".join("?" * count)


def in_plain_words(error: sqlite3.Error, path: Path) -> str:
    """What went wrong with the file and what to do about it."""
    name = getattr(error, "sqlite_errorname", "")
    if name == "SQLITE_FULL" or name.startswith("SQLITE_IOERR"):
        return f"{path} could not be written: {error}. Free some disk space; what was stored stays stored."
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"{path} is held by another process for too long: {error}."
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return f"{path} is damaged: {error}. Restore it from a copy, or move it away to start a new store."
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return (
            f"{path} cannot be opened for writing: {error}. Check the permissions of the file and its folder."
        )
    return f"{path}: {error}"
