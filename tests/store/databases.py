"""The databases that the contract suite runs over: one entry of a table for each kind of store."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest

from afterwit.store import Store
from afterwit.store.schema import MIGRATIONS
from afterwit.store.sqlite import SqliteDatabase, SqliteStore, connect, migrate
from tests.store.places import MODEL, File, Place, Schema


class Database(Protocol):
    """One database, empty at first, bound to MODEL."""

    def open(self) -> Store:
        """A store over it, which the caller closes. Several may be open at once."""
        ...

    @property
    def place(self) -> Place:
        """For processes that open it themselves."""
        ...

    def crash(self) -> None:
        """As if all processes were killed now: what is opened from here on has what their death leaves.

        Stores that are open may only be closed.
        """
        ...


class SqliteFile:
    """A SQLite file below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._crashes = 0
        self.path.parent.mkdir(parents=True)
        self.path.write_bytes(_empty_store())

    @property
    def path(self) -> Path:
        return self._folder / str(self._crashes) / "store.db"

    @property
    def place(self) -> Place:
        return File(self.path)

    def open(self) -> Store:
        return self.place.open()

    def crash(self) -> None:
        """Go on with a copy of the file and its log as they are now."""
        left = self.path.parent
        self._crashes += 1
        shutil.copytree(left, self.path.parent, ignore=shutil.ignore_patterns("*-shm"))


@cache
def _empty_store() -> bytes:
    """The bytes of a new store: copying them is cheaper than creating one."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "store.db"
        SqliteStore.open(path, fingerprint=MODEL).close()
        return path.read_bytes()


class PostgresqlSchema:
    """A schema of the session's server."""

    def __init__(self, folder: Path) -> None:
        from tests.store.postgresql.server import server

        self._server = server()
        self._name = self._server.empty_store()
        self.url = self._server.url(self._name)
        weakref.finalize(self, self._server.unused.append, self._name)

    @property
    def place(self) -> Place:
        return Schema(self.url)

    def open(self) -> Store:
        return self.place.open()

    def crash(self) -> None:
        """The server drops what is open, as it does when a client dies."""
        self._server.drop_clients(self._name)


DATABASES: Mapping[str, Callable[[Path], Database]] = {"sqlite": SqliteFile, "postgresql": PostgresqlSchema}
"""From an empty folder to a database."""
KINDS = [
    pytest.param(kind, marks=[pytest.mark.cluster] if kind == "postgresql" else []) for kind in DATABASES
]
"""Of the table, each with the mark of what it needs."""


def _new_schema(_: Path) -> Place:
    from tests.store.postgresql.server import server

    return Schema(server().url(server().empty_schema()))


NEW: Mapping[str, Callable[[Path], Place]] = {
    "sqlite": lambda folder: File(folder / "store" / "store.db"),
    "postgresql": _new_schema,
}
"""From an empty folder to a place where no store was made yet."""


def store_in_memory() -> SqliteStore:
    """A store that nothing else sees."""
    path = Path(":memory:")
    connection = connect(path, "OFF")
    connection.deserialize(_empty_memory())
    return SqliteStore(SqliteDatabase(connection, path))


@cache
def _empty_memory() -> bytes:
    path = Path(":memory:")
    connection = connect(path, "OFF")
    migrate(SqliteDatabase(connection, path), MIGRATIONS)
    return connection.serialize()
