"""Values and rows on their way to PostgreSQL and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from psycopg import Connection
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import StrDumper

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
