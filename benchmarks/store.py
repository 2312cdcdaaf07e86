"""CPU time of storing one turn of 10 KB, against SQLite alone.

The floor inserts the same bytes, packed beforehand, into one table with one key, one transaction each. Not
measured: other processes, and synchronous = FULL, which survives a power loss.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from afterwit.core.message import Conversation, Message
from afterwit.core.turn import Finish, Kind, Sampled, Sampling, Turn
from afterwit.store import AsyncStore, Store
from afterwit.store.sqlite import SqliteStore
from afterwit.store.sqlite.codec import content_columns
from benchmarks.asked import Asked
from benchmarks.measure import Row, at_least, at_most, interleaved, itself, noted, ratios

TOKENS_OF_PROMPT, TOKENS_OF_RESPONSE = 900, 180
IN_FLIGHT = 32
WHY = "SQLite alone takes most of it for these bytes; seven indexes, packing and a thread take the rest"


def rows(asked: Asked) -> Iterator[Row]:
    """D1."""
    work = [_turn(number) for number in range(500 if asked.quick else 4000)]
    gc.freeze()  # the work itself is not the store's to walk through
    ways = {"floor": _floor, "calls": _calls, "loop": _from_a_loop}
    variants = {name: partial(_in_a_folder, way, work) for name, way in ways.items()}
    timed, note = interleaved(variants, runs=asked.runs, clock=itself)
    note = noted(f"{len(_record(work[0]))} bytes", note)
    micros = tuple(run["loop"] / len(work) * 1e6 for run in timed)
    yield Row(
        id="D1",
        what="CPU us of a turn through the writer thread, 32 in flight",
        values=micros,
        target=at_most(80),
        note=note,
        why=WHY,
    )
    yield Row(
        id="D1",
        what="turns a CPU second",
        values=tuple(1e6 / each for each in micros),
        target=at_least(3000),
    )
    yield Row(id="d1", what="the same / SQLite alone", values=ratios(timed, "loop"), floor="SQLite alone")
    yield Row(
        id="d1",
        what="without thread and loop / SQLite alone",
        values=ratios(timed, "calls"),
        floor="SQLite alone",
    )


def _in_a_folder(way: Callable[[Path, list[Turn]], float], work: list[Turn]) -> float:
    with tempfile.TemporaryDirectory() as name:
        return way(Path(name), work)


def _floor(folder: Path, work: list[Turn]) -> float:
    """CPU seconds of SQLite alone for the same bytes."""
    connection = sqlite3.connect(folder / "floor.db", isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE records (id TEXT PRIMARY KEY, data BLOB)")
    packed = [(turn.id, _record(turn)) for turn in work]
    began = time.process_time()
    for row in packed:
        connection.execute("INSERT INTO records VALUES (?, ?)", row)
    spent = time.process_time() - began
    connection.close()
    return spent


def _calls(folder: Path, work: list[Turn]) -> float:
    """CPU seconds of the store, encoding included."""
    store = SqliteStore.open(folder / "plain.db", fingerprint=None)
    began = time.process_time()
    for turn in work:
        _add(store, turn)
    spent = time.process_time() - began
    store.close()
    return spent


def _from_a_loop(folder: Path, work: list[Turn]) -> float:
    """CPU seconds through the writer thread, the event loop's share included."""

    async def run() -> float:
        store = AsyncStore(SqliteStore.open(folder / "loop.db", fingerprint=None))
        waiting = iter(work)

        async def caller() -> None:
            for turn in waiting:
                await store.call(lambda s, turn=turn: _add(s, turn))

        began = time.process_time()
        await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
        spent = time.process_time() - began
        await store.close()
        return spent

    return asyncio.run(run())


def _add(store: Store, turn: Turn) -> None:
    number = int(turn.id[1:])
    store.add_turn(
        turn,
        prompt_hash=(number * 2654435761 % 2**64).to_bytes(16, "big"),
        full_hash=(number * 11400714819323198485 % 2**64).to_bytes(16, "big"),
        depth=4,
        full_depth=5,
        delivered=True,
        reason=None,
        now=turn.created,
    )


def _record(turn: Turn) -> bytes:
    columns = content_columns(turn).values()
    return b"".join(value if isinstance(value, bytes) else str(value).encode() for value in columns)


def _turn(number: int) -> Turn:
    """A conversation of about 4.5 KB, its ids and a response: about 10 KB stored."""
    words = "The test fails because the fixture is opened twice, see line forty two. " * 15
    said = [Message(role=role, content=words) for role in ("system", "user", "assistant", "user")]
    ids = tuple((number * 7919 + place * 104729) % 151_936 for place in range(TOKENS_OF_PROMPT))
    sampled = Sampled(
        ids=ids[:TOKENS_OF_RESPONSE],
        logprobs=tuple(-token / 151_936 for token in ids[:TOKENS_OF_RESPONSE]),
        versions=(number // 64,) * TOKENS_OF_RESPONSE,
        forced=(False,) * TOKENS_OF_RESPONSE,
    )
    return Turn(
        id=f"t{number:024d}",
        scope="key/agent",
        session=f"s{number // 8}",
        parent=f"t{number - 1:024d}" if number % 8 else None,
        kind=Kind.MAIN,
        created=float(number),
        model="policy",
        conversation=Conversation(messages=tuple(said)),
        prompt_ids=ids,
        sampling=Sampling(max_tokens=512),
        sampled=sampled,
        message=Message(role="assistant", content=words[:600]),
        finish=Finish.STOP,
    )
