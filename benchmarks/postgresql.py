"""What does a durable turn of 10 KB cost over PostgreSQL, against SQLite that flushes each commit?

Both survive a power loss. The server runs on this machine, on a unix socket; a network adds its way to every
statement. The CPU of the client and of the server are counted separately: the server may be another machine.
Not measured: what its vacuum does later.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from afterwit.store import AsyncStore, Store
from afterwit.turn import Turn
from benchmarks.asked import Asked
from benchmarks.measure import Row, noted
from benchmarks.store import IN_FLIGHT, add_turn, begun_turn
from tests.store.postgresql.server import Server, programs


class Cost(NamedTuple):
    """Of one turn, in microseconds."""

    client: float
    server: float
    wall: float

    def __str__(self) -> str:
        server = f", {self.server:.0f} of the server" if self.server else ""
        return f"{self.client:.0f} us of CPU{server}, {self.wall:.0f} us in all"


class Place(NamedTuple):
    """A store for the turns, and the CPU time of its server."""

    open: Callable[[], Store]
    server_cpu: Callable[[], float]
    """Seconds so far."""


def rows(asked: Asked) -> Iterator[Row]:
    if programs() is None:
        yield Row(id="d3", what="a durable turn over PostgreSQL", values=(), absent="skipped: no server here")
        return
    work = [begun_turn(number) for number in range(200 if asked.quick else 2000)]
    server = Server(fsync="on")
    try:
        yield from _compared(asked, server, work)
    finally:
        server.remove()


def _compared(asked: Asked, server: Server, work: Sequence[Turn]) -> Iterator[Row]:
    for flying, id in ((IN_FLIGHT, "d3"), (1, "d4")):
        files, databases = list[Cost](), list[Cost]()
        for _ in range(asked.runs + 1):  # the first of each warms up
            files.append(_in_a_file(work, flying))
            databases.append(_in_a_schema(server, work, flying))
        yield from _rows(id, flying, files[1:], databases[1:])


def _rows(id: str, flying: int, files: Sequence[Cost], databases: Sequence[Cost]) -> Iterator[Row]:
    note = noted(f"SQLite FULL: {_middle(files)}", f"PostgreSQL: {_middle(databases)}")
    pairs = list(zip(databases, files, strict=True))
    what = f"durable turn, PostgreSQL / SQLite, {flying} in flight"
    yield Row(
        id=id,
        what=f"client's CPU of a {what}",
        values=tuple(database.client / file.client for database, file in pairs),
        floor="SQLite, FULL",
        note=note,
    )
    yield Row(
        id=id,
        what=f"with the server's: CPU of a {what}",
        values=tuple((database.client + database.server) / file.client for database, file in pairs),
        floor="SQLite, FULL",
    )
    yield Row(
        id=id,
        what=f"time of a {what}",
        values=tuple(database.wall / file.wall for database, file in pairs),
        floor="SQLite, FULL",
    )


def _middle(costs: Sequence[Cost]) -> Cost:
    return Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))


def _in_a_file(work: Sequence[Turn], flying: int) -> Cost:
    from afterwit.store.sqlite import SqliteStore

    with TemporaryDirectory() as name:
        path = Path(name) / "store.db"
        place = Place(lambda: SqliteStore.open(path, fingerprint=None, synchronous="FULL"), lambda: 0.0)
        return asyncio.run(_stored(place, work, flying))


def _in_a_schema(server: Server, work: Sequence[Turn], flying: int) -> Cost:
    from afterwit.store.postgresql import PostgresqlStore

    url = server.url(server.empty_schema())
    place = Place(lambda: PostgresqlStore.open(url, fingerprint=None), server.cpu_seconds)
    return asyncio.run(_stored(place, work, flying))


async def _stored(place: Place, work: Sequence[Turn], flying: int) -> Cost:
    store = AsyncStore(place.open())
    waiting = iter(work)

    async def caller() -> None:
        for turn in waiting:
            await store.call(lambda s, turn=turn: add_turn(s, turn))

    began = time.process_time(), place.server_cpu(), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(flying)))
    ended = time.process_time(), place.server_cpu(), time.perf_counter()
    await store.close()
    return Cost(*((now - then) / len(work) * 1e6 for now, then in zip(ended, began, strict=True)))
