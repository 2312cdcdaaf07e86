"""The place of a store, for processes that open it themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from afterwit.store import Store

MODEL = "model"
"""The fingerprint of every store of the tests."""


class Place(Protocol):
    """Can be sent to another process."""

    def open(self) -> Store:
        """The store, made if missing."""
        ...

    def watched(self, before: Callable[[], None]) -> Store:
        """The store, which must exist; `before` is called before each of its statements."""
        ...


@dataclass(frozen=True, slots=True)
class File:
    """Of SQLite."""

    path: Path

    def open(self) -> Store:
        from afterwit.store.sqlite import SqliteStore

        return SqliteStore.open(self.path, fingerprint=MODEL)

    def watched(self, before: Callable[[], None]) -> Store:
        from afterwit.store.sqlite import SqliteDatabase, SqliteStore, connect

        class Watched(SqliteDatabase):
            def _run(self, *arguments: Any) -> Any:
                before()
                return super()._run(*arguments)

        return SqliteStore(Watched(connect(self.path, "NORMAL"), self.path))


@dataclass(frozen=True, slots=True)
class Schema:
    """Of PostgreSQL."""

    url: str

    def open(self) -> Store:
        from afterwit.store.postgresql import PostgresqlStore

        return PostgresqlStore.open(self.url, fingerprint=MODEL)

    def watched(self, before: Callable[[], None]) -> Store:
        from afterwit.store.postgresql import PostgresqlStore

        def watched(run: Callable[..., Any]) -> Callable[..., Any]:
            def watching(*arguments: Any) -> Any:
                before()
                return run(*arguments)

            return watching

        store = PostgresqlStore.open(self.url, fingerprint=MODEL)
        for name in ("_order", "_run"):
            setattr(store._db, name, watched(getattr(store._db, name)))
        return store
