"""The store over a database that speaks SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from afterwit.errors import StoreError, StoreMismatch
from afterwit.store.port import Copying
from afterwit.store.sql.browsing import SqlBrowsing
from afterwit.store.sql.database import Database, Row
from afterwit.store.sql.lineage import SqlLineage
from afterwit.store.sql.orders import SqlControl, SqlForgetting, SqlReview
from afterwit.store.sql.promotion import SqlPromotion
from afterwit.store.sql.queues import SqlLearnerQueue, SqlLeases
from afterwit.store.sql.reading import SqlReading, SqlSources
from afterwit.store.sql.recording import SqlParentLookup, SqlRecording
from afterwit.store.sql.upkeep import SqlKeys, SqlRetention, SqlStatuses


class SqlStore(
    SqlRecording,
    SqlParentLookup,
    SqlLeases,
    SqlLearnerQueue,
    SqlLineage,
    SqlPromotion,
    SqlControl,
    SqlReview,
    SqlSources,
    SqlReading,
    SqlBrowsing,
    SqlRetention,
    SqlForgetting,
    SqlStatuses,
    SqlKeys,
):
    """Implements the port `Store`, all but `copy_to`, which is each database's own."""

    def transaction(self) -> AbstractContextManager[None]:
        return self._database.transaction()

    def together(self) -> AbstractContextManager[None]:
        return self._database.together()

    def leading(self) -> AbstractContextManager[None]:
        return self._database.leading()

    def listening(self, heard: Callable[[], object]) -> AbstractContextManager[None]:
        return self._database.listening(heard)

    def copy_into(self, other: Copying) -> int:
        if not isinstance(other, SqlStore):
            raise StoreError(f"a store of the kind {type(other).__name__} takes no copy")
        return copy_rows(self._database, other._database)

    def close(self) -> None:
        self._database.close()


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
"""Every table but `meta`, and the number by which its rows are read some at a time."""


COUNTED = ("turns", "feedback", "episodes", "events")
"""Tables whose numbers the database gives."""


WINDOW = 256
"""Numbers read at once."""


SCHEMA_KEY = "schema"
"""Of `meta`: the database's own."""


def copy_rows(source: Database, target: Database) -> int:
    """Copy all rows as one moment of the source knows them; returns the number of turns.

    In the target all of it is stored, or nothing. Raises StoreError if it holds anything, StoreMismatch if it
    belongs to another model.
    """
    with source.snapshot(), target.alone():
        _refuse_full(target)
        _copy_meta(source, target)
        for table, key in TABLES.items():
            _copy(source, target, table, key)
            if key is not None and table in COUNTED:
                target.number_on(table, key)
        return _count(target, "turns")


def _refuse_full(target: Database) -> None:
    for table in TABLES:
        if target.row(f"SELECT 1 FROM {table} LIMIT 1") is not None:
            raise StoreError(f"{target.place} is not empty: its {table} would be mixed with others")


def _copy_meta(source: Database, target: Database) -> None:
    there = {row["key"]: row["value"] for row in target.rows("SELECT * FROM meta")}
    for row in source.rows("SELECT * FROM meta WHERE key <> ?", (SCHEMA_KEY,)):
        if there.get(row["key"], row["value"]) != row["value"]:
            raise StoreMismatch(f"{target.place} belongs to another model or tokenizer than {source.place}")
        target.put("meta", {"key": row["key"], "value": row["value"]}, key="key")


def _copy(source: Database, target: Database, table: str, key: str | None) -> None:
    columns = target.columns(table)
    for rows in _pages(source, f"SELECT {', '.join(columns)} FROM {table}", table, key):
        target.insert_many(table, columns, [tuple(row) for row in rows])
    if (has := _count(target, table)) != (had := _count(source, table)):
        raise StoreError(f"{target.place} got {has} rows of {table}, and {source.place} has {had}")


def _pages(source: Database, select: str, table: str, key: str | None) -> Iterator[Sequence[Row]]:
    if key is None:
        yield source.rows(select)
        return
    first, last = source.rows(f"SELECT coalesce(min({key}), 0), coalesce(max({key}), -1) FROM {table}")[0]
    for start in range(first, last + 1, WINDOW):
        where = f" WHERE {key} >= ? AND {key} < ? ORDER BY {key}"
        if rows := source.rows(select + where, (start, start + WINDOW)):
            yield rows


def _count(database: Database, table: str) -> int:
    return int(database.rows(f"SELECT count(*) FROM {table}")[0][0])
