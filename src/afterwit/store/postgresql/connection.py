"""One connection to the server, made again if it was lost between two transactions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import count
from typing import Any, cast

import psycopg
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, ExecStatus, TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import StrDumper

DEFAULTS: Mapping[str, str] = {
    "application_name": "afterwit",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "tcp_user_timeout": "30000",
}
"""Of libpq; what the URL says counts instead. A server that went silent is given up after 30 seconds."""


SESSION = (
    "SET client_encoding = 'UTF8'; SET default_transaction_isolation = 'read committed';"
    " SET default_transaction_read_only = off; SET lock_timeout = '10s';"
    " SET idle_in_transaction_session_timeout = '60s'; SET jit = off"
)
"""A statement waits ten seconds for another process's transaction, as with SQLite. A process that
stands still within a transaction for a minute loses it."""


def conninfo_of(url: str) -> str:
    """The URL with the defaults for what it does not say."""
    said = conninfo_to_dict(url)
    return make_conninfo(url, **{name: value for name, value in DEFAULTS.items() if name not in said})


class Link:
    """Runs statements. Raises what psycopg raises."""

    def __init__(self, url: str) -> None:
        self.url, self._conninfo = url, conninfo_of(url)
        self._places: dict[str, tuple[int, dict[str, int]]] = {}
        """Of each statement, how many values a row has, and the place of each name's."""
        self._connect()

    def _connect(self) -> None:
        self._connection = psycopg.connect(
            self._conninfo, autocommit=True, cursor_factory=psycopg.RawCursor[Any]
        )
        adapt(self._connection)
        self._cursor = self._connection.cursor(binary=True)
        self.order(SESSION)

    @property
    def lost(self) -> bool:
        return self._connection.closed

    @property
    def failed(self) -> bool:
        """Whether a statement failed within the transaction that is open: no other can follow."""
        return self._connection.info.transaction_status is TransactionStatus.INERROR

    def again(self) -> None:
        """Connect anew."""
        self.close()
        self._connect()

    def order(self, statements: str) -> str:
        """Run statements without values in one round trip; the last one's answer, as `COMMIT`."""
        connection = self._connection.pgconn
        result = connection.exec_(statements.encode())
        if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
            error = psycopg.errors.error_from_result(result, encoding="utf-8")
            if connection.status is ConnStatus.OK:
                raise error
            self._connection.close()
            raise psycopg.OperationalError(str(error))
        return (result.command_status or b"").decode()

    def execute(self, sql: str, values: Sequence[Any]) -> int:
        return self._cursor.execute(query(sql), values).rowcount

    def rows(self, sql: str, values: Sequence[Any]) -> list[Named]:
        cursor = self._cursor.execute(query(sql), values)
        found = cast(list[tuple[Any, ...]], cursor.fetchall())
        if not found:
            return []
        width, places = self._places.get(sql, (0, {}))
        if len(found[0]) != width:
            names = [column.name for column in cursor.description or ()]
            places = places_of(names)
            self._places[sql] = (len(names), places)
        return [Named(places, values) for values in found]

    def repeat(self, sql: str, values: Sequence[Sequence[Any]]) -> None:
        """Run one statement with each of these values, without waiting for each answer."""
        self._cursor.executemany(query(sql), values)

    def close(self) -> None:
        self._connection.close()


NUL, SHOWN = "\0", "\N{SYMBOL FOR NULL}"


class Text(StrDumper):
    """A text of PostgreSQL has no NUL: its symbol is stored in its place."""

    def dump(self, obj: str) -> bytes | bytearray | memoryview | None:
        return super().dump(obj.replace(NUL, SHOWN))


class Named:
    """A row's values, by name or by place."""

    __slots__ = ("_places", "_values")

    def __init__(self, places: Mapping[str, int], values: Sequence[Any]) -> None:
        self._places, self._values = places, values

    def __getitem__(self, key: str | int) -> Any:
        return self._values[self._places[key] if isinstance(key, str) else key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)


def places_of(names: Sequence[str]) -> dict[str, int]:
    """The place of each name's value; of equal names the first counts, as in SQLite."""
    return {name: len(names) - 1 - back for back, name in enumerate(reversed(names))}


def adapt(connection: Connection[Any]) -> None:
    """Truth is 1 and 0, integers have eight bytes: a statement is prepared once, whatever its values."""
    for kind in (int, bool):
        connection.adapters.register_dumper(kind, Int8BinaryDumper)
    connection.adapters.register_dumper(str, Text)


TYPES = {
    r"INTEGER PRIMARY KEY": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    r"INTEGER": "BIGINT",
    r"REAL": "DOUBLE PRECISION",
    r"BLOB": "BYTEA",
    r"TEXT": 'TEXT COLLATE "C"',
    r"WITHOUT ROWID": "",
}
"""As in SQLite, integers have eight bytes, numbers are doubles, and texts sort by their bytes."""


TYPE = re.compile("|".join(rf"\b{name}\b" for name in TYPES))


BESIDE: Mapping[int, tuple[str, ...]] = {
    1: (
        "DROP INDEX turns_by_prompt",
        "DROP INDEX turns_by_full",
        "CREATE INDEX turns_by_prompt ON turns (prompt_hash, seq)",
        "CREATE INDEX turns_by_full ON turns (full_hash, seq)",
        "CREATE FUNCTION instr(bytea, text) RETURNS integer LANGUAGE sql IMMUTABLE STRICT"
        " RETURN position(convert_to($2, 'UTF8') IN $1)",
    ),
}
"""What only PostgreSQL needs, after the statements of a version. An index of SQLite holds the row's number by
itself: the newest rows of a hash are found without reading the others."""


def statement_of_schema(sql: str) -> str:
    """A statement of the schema, in PostgreSQL's words."""
    return TYPE.sub(lambda found: TYPES[found[0]], sql)


@cache
def query(sql: str) -> bytes:
    """A statement of the port's SQL, with numbered values: `?` becomes `$1`, `$2`, ..."""
    numbers = count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql).encode()
