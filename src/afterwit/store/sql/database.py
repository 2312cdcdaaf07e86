"""What the port's SQL needs of a database: statements, transactions, locks, and the few words that differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, ClassVar, Protocol

ALL = 2**62
"""More rows, and a later row, than any store has."""


LAST_CHARACTER = chr(0x10FFFF)
"""Sorts after every other: a name that begins with a prefix sorts before the prefix and this."""


class Row(Protocol):
    """A row's values, by name or by place."""

    def __getitem__(self, key: str | int, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...


class Database(ABC):
    """One connection, used by one thread at a time. Other processes may use the same database.

    Values stand in the SQL as `?`. Truth is stored as 1 and 0. Statements raise StoreError in words for the
    person who runs the machine.
    """

    LOCKED: ClassVar[str] = ""
    """Behind a SELECT of rows that the transaction will change: nobody else changes them until it ends."""
    UNLOCKED: ClassVar[str] = ""
    """The same, but rows that somebody else is changing are left out."""
    EACH: ClassVar[str]
    """Behind `FROM wanted`: joins each of its rows with those of a SELECT that names it, as `x`."""

    machine = ""
    """This one's name, if others may share the database."""

    def __init__(self, place: str) -> None:
        self.place = place
        """Where it is, for messages."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing. An inner transaction joins the outer one, and fails it."""

    @abstractmethod
    def alone(self) -> AbstractContextManager[None]:
        """A transaction beside which nothing else is written: what was read in it stays as it is."""

    @abstractmethod
    def together(self) -> AbstractContextManager[None]:
        """A transaction of several callers' calls: what would wait in it raises StoreConflict."""

    @abstractmethod
    def hold(self, name: str) -> None:
        """Within a transaction: who holds the same name waits until it ends."""

    @abstractmethod
    def leading(self) -> AbstractContextManager[None]:
        """While the body runs, over transactions and new connections, nobody else is within such a body."""

    @abstractmethod
    def tell(self) -> None:
        """Within a transaction: once it is stored, those who are `listening` hear of it."""

    @abstractmethod
    def listening(self, heard: Callable[[], object]) -> AbstractContextManager[None]:
        """While the body runs, `heard` is called in another thread whenever somebody tells something."""

    @abstractmethod
    def decided(self) -> int:
        """A `seq` up to which every turn is stored by now, or never will be: transactions may end in another
        order than they took their numbers."""

    @abstractmethod
    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        """The number of rows that it changed."""

    @abstractmethod
    def rows(self, sql: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """All rows that it finds."""

    @abstractmethod
    def add(self, row: Mapping[str, Any], beside: Mapping[str, Any]) -> int:
        """Insert a row of `turns` with its row of `contents`, and return the number that both got."""

    @abstractmethod
    def size(self) -> int:
        """Bytes in use, without the room that deleted rows left."""

    @abstractmethod
    def turns_beyond(self, max_bytes: int) -> int:
        """About how many turns are stored beyond `max_bytes`; 0 if `size` is within it."""

    @abstractmethod
    def wipe(self) -> None:
        """Rows were deleted: have them unreadable in the files, once the transaction is over."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """All that is read in the body is as one moment knows it; nothing waits for it."""

    @abstractmethod
    def columns(self, table: str) -> tuple[str, ...]:
        """The names of a table's columns."""

    @abstractmethod
    def insert_many(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows of these columns."""

    @abstractmethod
    def number_on(self, table: str, column: str) -> None:
        """Rows came with their numbers: the next one gets a greater one."""

    @abstractmethod
    def close(self) -> None:
        """Free the connection."""

    def row(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        found = self.rows(sql, values)
        return found[0] if found else None

    def insert(self, table: str, row: Mapping[str, Any]) -> None:
        self.execute(inserting(table, tuple(row)), tuple(row.values()))

    def put(self, table: str, row: Mapping[str, Any], *, key: str) -> None:
        """Insert a row, in the place of the one that has the same `key`."""
        self.execute(_put(table, tuple(row), key), tuple(row.values()))


@cache
def _put(table: str, columns: tuple[str, ...], key: str) -> str:
    changes = ", ".join(f"{column} = excluded.{column}" for column in columns if column != key)
    return f"{inserting(table, columns)} ON CONFLICT ({key}) DO UPDATE SET {changes}"


@cache
def inserting(table: str, columns: tuple[str, ...]) -> str:
    """The statement that inserts a row."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks(len(columns))})"


def marks(count: int) -> str:
    """`?, ?, ...`; of none, what is in no column."""
    return ", ".join("?" * count) or "NULL"


class Component:
    """One protocol of the port, over the connection that all components share."""

    def __init__(self, database: Database) -> None:
        self._database = database
