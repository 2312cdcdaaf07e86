"""The store in one PostgreSQL database."""

from __future__ import annotations

import platform
from contextlib import closing
from pathlib import Path
from typing import Self

from afterwit.store.postgresql.database import PostgresqlDatabase
from afterwit.store.postgresql.opening import open_database, store_exists
from afterwit.store.sql.store import SqlStore, copy_rows
from afterwit.store.sqlite import open_database as open_file


class PostgresqlStore(SqlStore):
    """Implements the port `Store` over one schema of a database. Processes on any machine may open it."""

    _database: PostgresqlDatabase

    @classmethod
    def open(cls, url: str, *, fingerprint: str | None, machine: str | None = None) -> Self:
        """Open or create the store at `postgresql://...`, as libpq reads it.

        `fingerprint` binds it to tokenizer and base weights; None: any store. `machine` is this one's name
        beside the others that use the store; None: the name of the host. What was written survives a
        killed client, a killed server and a power loss, as far as the server's `synchronous_commit` says so.
        Raises StoreMismatch for a newer schema, another fingerprint or foreign tables, which stay untouched.
        """
        database = open_database(url, fingerprint=fingerprint)
        database.machine = platform.node() if machine is None else machine
        return cls(database)

    @staticmethod
    def exists(url: str) -> bool:
        """Whether a store was made there. Raises what `open` raises."""
        return store_exists(url)

    def copy_to(self, path: Path) -> None:
        with closing(open_file(path, fingerprint=None)) as copy:
            copy_rows(self._database, copy)
