"""The interface between the store's SQL and a database: statements, transactions, locks, dialect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any, ClassVar, Protocol

from afterwit.errors import StoreError, StoreMismatch

ALL = 2**62
"""Greater than any `seq`, and more rows than any store has."""

LAST_CHARACTER = chr(0x10FFFF)
"""Sorts after every other: names that begin with a prefix sort before the prefix and this."""

UNSTORABLE = (OverflowError, UnicodeEncodeError)
"""Python's errors for numbers of more than 64 bits and for halves of characters, which no database takes."""


class Row(Protocol):
    """A row's values, by name or by position."""

    def __getitem__(self, key: str | int, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...

    def keys(self) -> Iterable[str]: ...


class Database(ABC):
    """One connection, used by one thread at a time. Other processes may use the same database.

    Placeholders are `?`. Booleans are stored as 1 and 0. Statements raise StoreError with a message for the
    person who runs the machine. Methods that have a body here suit a database of one machine in which one
    transaction writes at a time.
    """

    FOR_UPDATE: ClassVar[str] = ""
    """Ends a SELECT of rows that the transaction will change: locks them until it ends."""
    SKIP_LOCKED: ClassVar[str] = ""
    """The same, but leaves out rows that another transaction has locked."""
    SNAPSHOT: ClassVar[str]
    """Begins a transaction that only reads, and sees one moment."""
    EACH: ClassVar[str]
    """After `FROM wanted`: joins each of its rows with those of a SELECT that refers to it, as `x`."""

    OTHERWISE: ClassVar[str]
    """The remedy for a store of another model."""

    machine = ""
    """The name of this machine if others may share the database."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._depth = 0
        self._ended_by: StoreError | None = None
        """Why the database itself ended the transaction, as on a full disk."""

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing. An inner transaction joins the outer one, and fails it."""
        return nullcontext() if self._depth else self._outermost(self._beginning)

    @contextmanager
    def _outermost(self, beginning: str) -> Iterator[None]:
        self._begin(beginning)
        self._depth = 1
        try:
            yield
            if self._ended_by is not None:
                raise self._ended_by
            self._commit()
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._depth, self._ended_by = 0, None
            self._ended()

    def snapshot(self) -> AbstractContextManager[None]:
        """All reads in the body see one moment. No writer waits for it."""
        return self._outermost(self.SNAPSHOT)

    @property
    @abstractmethod
    def _beginning(self) -> str:
        """The statements that begin a transaction that writes."""

    @abstractmethod
    def _begin(self, statements: str) -> None: ...

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _roll_back(self) -> None: ...

    def _ended(self) -> None:
        """The outermost transaction is over."""

    def alone(self) -> AbstractContextManager[None]:
        """A transaction during which no other one writes, so that what it read still holds."""
        return self.transaction()

    def together(self) -> AbstractContextManager[None]:
        """A transaction of several callers' calls. A call that would block raises StoreConflict."""
        return self.transaction()

    def hold(self, name: str) -> None:
        """Lock a name until the transaction ends. Waits while another transaction holds it."""

    def holding(self, name: str) -> AbstractContextManager[None]:
        """A transaction that holds a name, if other processes could hold it too."""
        return nullcontext()

    def leading(self) -> AbstractContextManager[None]:
        """Hold the only learner's lock, across transactions and new connections. AlreadyRunning if taken.
        On one machine, the lock of the folder of versions next to the store does it."""
        return nullcontext()

    def notify(self) -> None:
        """Within a transaction: wake those who are `listening` once it is committed."""

    def listening(self, notified: Callable[[], object]) -> AbstractContextManager[None]:
        """While the body runs, call `notified` from another thread at each `notify`, if there are any."""
        return nullcontext()

    def settled(self) -> int:
        """A `seq` up to which no more turns will appear: transactions may commit in another order than they
        took their numbers."""
        return ALL

    @abstractmethod
    def execute(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Run a statement; returns the number of rows that it changed."""

    @abstractmethod
    def rows(self, sql: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """Run a query; returns all its rows."""

    @abstractmethod
    def add(self, turn: Mapping[str, Any], content: Mapping[str, Any]) -> int:
        """Insert a row of `turns` and its row of `contents`; returns the `seq` that both got."""

    @abstractmethod
    def size(self) -> int:
        """Bytes in use, without the room that deleted rows left."""

    @abstractmethod
    def turns_beyond(self, max_bytes: int) -> int:
        """About how many turns are stored beyond `max_bytes`; 0 if `size` is within it."""

    def wipe(self) -> None:
        """Make deleted rows unreadable in the files, once the transaction is over."""

    @abstractmethod
    def insert_many(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows of these columns."""

    def number_on(self, table: str, column: str) -> None:
        """After rows were inserted with their numbers: continue numbering from the greatest, if the database
        numbers this column."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def row(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        """The first row; None without one."""
        found = self.rows(sql, values)
        return found[0] if found else None

    def value(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """The first value of the first row; None without a row."""
        found = self.rows(sql, values)
        return found[0][0] if found else None

    def insert(self, table: str, row: Mapping[str, Any]) -> None:
        self.execute(inserting(table, tuple(row)), tuple(row.values()))

    def put(self, table: str, row: Mapping[str, Any], *, key: str) -> None:
        """Insert a row, or replace the one that has the same `key`."""
        self.execute(_putting(table, tuple(row), key), tuple(row.values()))

    def refuse_another(self, fingerprint: str | None) -> None:
        """Raises StoreMismatch if the store is bound to another fingerprint than this; None: any will do."""
        bound = self.value("SELECT value FROM meta WHERE key = 'fingerprint'")
        if bound is not None and fingerprint not in (None, bound):
            raise StoreMismatch(
                f"{self.place} belongs to another model or tokenizer: their fingerprint is {bound}, this "
                f"model's {fingerprint}. Serve the model it was made with, or {self.OTHERWISE}."
            )


def refuse_newer(place: object, schema: int, newest: int) -> None:
    """Raises StoreMismatch for a store whose schema this Afterwit does not know."""
    if schema > newest:
        raise StoreMismatch(
            f"{place} has schema {schema}; this Afterwit supports at most {newest}. Install a newer Afterwit."
        )


@cache
def inserting(table: str, columns: tuple[str, ...]) -> str:
    """The statement that inserts a row."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks(len(columns))})"


@cache
def _putting(table: str, columns: tuple[str, ...], key: str) -> str:
    changes = ", ".join(f"{column} = excluded.{column}" for column in columns if column != key)
    return f"{inserting(table, columns)} ON CONFLICT ({key}) DO UPDATE SET {changes}"


def marks(count: int) -> str:
    """`?, ?, ...`; `NULL`, which equals nothing, for none."""
    return ", ".join("?" * count) or "NULL"
