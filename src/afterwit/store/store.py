"""The store, where the stages meet: turns, next states, verdicts, versions, leases, orders, keys, health."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from afterwit.errors import StoreError, StoreMismatch
from afterwit.store.database import Database, Row
from afterwit.store.leases import Leases
from afterwit.store.lineage import Lineage
from afterwit.store.promotion import Promotion
from afterwit.store.recording import Recording
from afterwit.store.schema import TABLES
from afterwit.store.upkeep import Upkeep

PAGE = 256
"""Numbers read at once."""

SCHEMA_KEY = "schema"
"""Of `meta`: the database's own."""


class Store(Recording, Leases, Lineage, Promotion, Upkeep, ABC):
    """The whole store. Each method is one transaction, stored whole or not at all.

    The writes of a method survive a killed process as soon as it returns; whether they survive a power loss
    is the database's own setting. A store is used by one thread at a time; other threads and processes open
    their own.

    Raises StoreUnavailable if the database cannot read or write now, and StoreError if it refuses the call.
    In both cases nothing of the call is stored.
    """

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
    for start in range(first, last + 1, PAGE):
        if rows := source.rows(select + where, (start, start + PAGE) if where else ()):
            yield rows
