"""The store, where the stages meet: turns, next states, verdicts, versions, leases, orders, keys, health."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from afterwit.errors import StoreError, StoreMismatch
from afterwit.store.browsing import Browsing
from afterwit.store.database import Database, Row
from afterwit.store.leases import Leases
from afterwit.store.lineage import Lineage
from afterwit.store.promotion import Promotion
from afterwit.store.reading import Reading
from afterwit.store.recording import Recording
from afterwit.store.upkeep import Upkeep

TABLES: Mapping[str, str | None] = {
    "turns": "seq",
    "contents": "seq",
    "next_states": "seq",
    "feedback": "number",
    "verdicts": "seq",
    "votes": "seq",
    "versions": "number",
    "trained": "version",
    "episodes": "number",
    "events": "number",
    "suite": None,
    "statuses": None,
    "keys": None,
    "excluded": None,
}
"""Every table but `meta`, and the number by which its rows are read in pages."""

NUMBERED = ("turns", "feedback", "episodes", "events")
"""Tables whose numbers the database assigns."""

PAGE = 256
"""Numbers read at once."""

SCHEMA_KEY = "schema"
"""Of `meta`: the database's own."""


class Store(Recording, Leases, Lineage, Promotion, Upkeep, Reading, Browsing, ABC):
    """The whole store. Each method is one transaction, stored whole or not at all.

    The writes of a method survive a killed process as soon as it returns; whether they survive a power loss
    is the database's own setting. A store is used by one thread at a time; other threads and processes open
    their own.

    Raises StoreUnavailable if the database cannot read or write now, and StoreError if it refuses the call.
    In both cases nothing of the call is stored.
    """

    def transaction(self) -> AbstractContextManager[None]:
        """Several calls as one, stored whole or not at all. An inner transaction joins the outer one."""
        return self._database.transaction()

    def together(self) -> AbstractContextManager[None]:
        """A transaction of several callers' calls. One that would wait for another process, or must be alone,
        raises StoreConflict instead: then nothing of any call is stored, and each can be made by itself."""
        return self._database.together()

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
        return copy_rows(self._database, other._database)

    def close(self) -> None:
        """Close the connection. Nothing may be called afterwards."""
        self._database.close()


def copy_rows(source: Database, target: Database) -> int:
    """Copy all rows as of one moment of the source; returns the number of turns. See `Store.copy_into`."""
    with source.snapshot(), target.alone():
        for table in TABLES:
            if target.row(f"SELECT 1 FROM {table} LIMIT 1") is not None:
                raise StoreError(f"{target.place} is not empty: its {table} would be mixed with others")
        _copy_meta(source, target)
        for table, key in TABLES.items():
            columns = target.columns(table)
            for rows in _pages(source, f"SELECT {', '.join(columns)} FROM {table}", table, key):
                target.insert_many(table, columns, [tuple(row) for row in rows])
            if (has := _count(target, table)) != (had := _count(source, table)):
                raise StoreError(f"{target.place} got {has} rows of {table}, and {source.place} has {had}")
            if key is not None and table in NUMBERED:
                target.number_on(table, key)
        return _count(target, "turns")


def _copy_meta(source: Database, target: Database) -> None:
    there = {row["key"]: row["value"] for row in target.rows("SELECT * FROM meta")}
    for row in source.rows("SELECT * FROM meta WHERE key <> ?", (SCHEMA_KEY,)):
        if there.get(row["key"], row["value"]) != row["value"]:
            raise StoreMismatch(f"{target.place} belongs to another model or tokenizer than {source.place}")
        target.put("meta", {"key": row["key"], "value": row["value"]}, key="key")


def _pages(source: Database, select: str, table: str, key: str | None) -> Iterator[Sequence[Row]]:
    if key is None:
        yield source.rows(select)
        return
    first, last = source.rows(f"SELECT coalesce(min({key}), 0), coalesce(max({key}), -1) FROM {table}")[0]
    for start in range(first, last + 1, PAGE):
        where = f" WHERE {key} >= ? AND {key} < ? ORDER BY {key}"
        if rows := source.rows(select + where, (start, start + PAGE)):
            yield rows


def _count(database: Database, table: str) -> int:
    return int(database.rows(f"SELECT count(*) FROM {table}")[0][0])
