"""The store in one SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Self

from afterwit.store.sql import SqlStore
from afterwit.store.sqlite.database import SqliteDatabase, in_plain_words
from afterwit.store.sqlite.opening import SURVIVES_A_KILL, open_database


class SqliteStore(SqlStore):
    """Implements the port `Store` over one file in WAL mode. Processes may open it side by side."""

    _database: SqliteDatabase

    @classmethod
    def open(cls, path: Path, *, fingerprint: str | None, synchronous: str = SURVIVES_A_KILL) -> Self:
        """Open or create the store. `fingerprint` binds it to tokenizer and base weights; None: any store.

        `synchronous`: what was written survives a killed process with "NORMAL", and a power loss too with
        "FULL". Raises StoreMismatch for a newer schema, another fingerprint or a foreign file, which stay
        untouched.
        """
        return cls(open_database(path, fingerprint=fingerprint, synchronous=synchronous))

    def binding(self, scope: str) -> AbstractContextManager[None]:
        """One gateway writes into a file, in one thread: nothing comes between."""
        return nullcontext()

    def copy_to(self, path: Path) -> None:
        """SQLite's online backup."""
        path.touch(mode=0o600)
        try:
            with closing(sqlite3.connect(path)) as copy:
                self._database.copy_into(copy)
        except sqlite3.Error as error:
            raise in_plain_words(error, path) from error
