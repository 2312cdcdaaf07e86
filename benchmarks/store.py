"""What CPU time and bytes does a stored turn of 10 KB, or of a long session, take, against SQLite alone?

The floor inserts the same bytes, packed beforehand, into one table with one key, one transaction each, as
SQLite comes. Two variants are timed too: transactions of 32, as the store writes what waits together, and the
store's own rows with their indexes, packed beforehand and inserted one transaction each. Not measured: other
processes, and synchronous = FULL, which survives a power loss.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import uvloop

from afterwit.lifecycle import State
from afterwit.running.serve import spare_what_stays
from afterwit.store import AsyncStore, Store
from afterwit.store.rows import content_columns, first_columns
from afterwit.store.sqlite import SqliteStore, open_file
from afterwit.turn import Conversation, Finish, Kind, Message, Sampled, Sampling, Turn
from benchmarks.agent_text import passage
from benchmarks.asked import VOCABULARY, Asked
from benchmarks.measure import Row, at_most, interleaved, itself, noted, ratios
from benchmarks.sessions import drawn

T = TypeVar("T")

TOKENS_OF_PROMPT, TOKENS_OF_RESPONSE = 900, 180
IN_FLIGHT = 32
STEPS = 60
"""Of a session that grows to 25,000 tokens."""


def rows(asked: Asked) -> Iterator[Row]:
    yield from _records(asked)
    yield from _growing(asked)


def _records(asked: Asked) -> Iterator[Row]:
    """D1: turns that begin sessions, so that each is stored whole."""
    work = [begun_turn(number) for number in range(500 if asked.quick else 4000)]
    spare_what_stays()  # as the gateway's process does
    ways = {
        "floor": _floor,
        "grouped floor": _grouped_floor,
        "packing": _packing,
        "packed": _packed,
        "rows floor": _rows_floor,
        "calls": _calls,
        "loop": _from_a_loop,
    }
    variants = {name: partial(_in_a_folder, way, work) for name, way in ways.items()}
    timed, note = interleaved(variants, runs=asked.runs, clock=itself)
    micros = statistics.median(run["loop"] for run in timed) / len(work) * 1e6
    yield Row(
        id="D1",
        what="CPU of a turn through the writer thread, 32 in flight / SQLite alone",
        values=ratios(timed, "loop"),
        target=at_most(1.6),
        floor="SQLite alone",
        note=noted(f"{len(_record(work[0]))} bytes, {micros:.0f} us", note),
        why="see below",
    )
    yield Row(
        id="d1",
        what=f"the same / SQLite alone in transactions of {IN_FLIGHT}",
        values=ratios(timed, "loop", "grouped floor"),
        floor="SQLite alone, grouped",
    )
    yield Row(
        id="d1",
        what="the same / SQLite alone for the store's own rows and indexes, a transaction each",
        values=ratios(timed, "loop", "rows floor"),
        floor="SQLite alone, all that is on the disk",
    )
    parts = {
        "packing": "packing alone",
        "packed": f"both rows, packed beforehand, in transactions of {IN_FLIGHT}",
        "calls": "without thread and loop, a transaction each",
    }
    for name, what in parts.items():
        values = ratios(timed, name)
        yield Row(id="d1", what=f"{what} / SQLite alone", values=values, floor="SQLite alone")


def _growing(asked: Asked) -> Iterator[Row]:
    """D2: a session of STEPS turns, each of which repeats the conversation before it."""
    work = [turn for number in range(1 if asked.quick else 8) for turn in _session(number)]
    variants = {
        name: partial(_in_a_folder, way, work) for name, way in {"floor": _floor, "calls": _calls}.items()
    }
    timed, note = interleaved(variants, runs=asked.runs, clock=itself)
    stored, whole = _in_a_folder(_size, work), sum(len(_record(turn)) for turn in work)
    yield Row(
        id="D2",
        what=f"bytes of the turns of sessions with {STEPS} steps / of the same stored whole",
        values=(stored / whole,),
        target=at_most(0.1),
        floor="each turn's own messages and ids",
        note=f"{stored / len(work) / 1e3:.1f} kB a turn against {whole / len(work) / 1e3:.1f}",
    )
    yield Row(
        id="d2",
        what="CPU of storing one of them / SQLite alone for all of its bytes",
        values=ratios(timed, "calls"),
        floor="SQLite alone",
        note=note,
    )


def _size(folder: Path, work: list[Turn]) -> int:
    """Bytes that the turns take in the store."""
    store = SqliteStore.open(folder / "size.db", fingerprint=None)
    empty = store.size()
    for turn in work:
        add_turn(store, turn)
    size = store.size() - empty
    store.close()
    return size


def _in_a_folder(way: Callable[[Path, list[Turn]], T], work: list[Turn]) -> T:
    with tempfile.TemporaryDirectory() as name:
        return way(Path(name), work)


def _floor(folder: Path, work: list[Turn]) -> float:
    """CPU seconds of SQLite alone for the same bytes."""
    return _alone(folder, work)


def _grouped_floor(folder: Path, work: list[Turn]) -> float:
    """The same in transactions of many."""
    return _alone(folder, work, group=IN_FLIGHT)


def _alone(folder: Path, work: list[Turn], *, group: int = 1) -> float:
    connection = sqlite3.connect(folder / "floor.db", isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE records (id TEXT PRIMARY KEY, data BLOB)")
    packed = [(turn.id, _record(turn)) for turn in work]
    began = time.process_time()
    for number, row in enumerate(packed):
        if group > 1 and number % group == 0:
            connection.execute("BEGIN")
        connection.execute("INSERT INTO records VALUES (?, ?)", row)
        if group > 1 and number % group == group - 1:
            connection.commit()
    connection.commit()
    spent = time.process_time() - began
    connection.close()
    return spent


def _packing(folder: Path, work: list[Turn]) -> float:
    """CPU seconds of making columns of turns."""
    began = time.process_time()
    for turn in work:
        _columns(turn)
    return time.process_time() - began


def _rows_floor(folder: Path, work: list[Turn]) -> float:
    """CPU seconds of SQLite alone for all that the store has on the disk afterwards."""
    return _packed(folder, work, group=1)


def _packed(folder: Path, work: list[Turn], *, group: int = IN_FLIGHT) -> float:
    """CPU seconds of inserting the store's rows, which are there."""
    database = open_file(folder / "packed.db", fingerprint=None)
    columns = [_columns(turn) for turn in work]
    began = time.process_time()
    for start in range(0, len(columns), group):
        with database.transaction():
            for row, beside in columns[start : start + group]:
                database.add(row, beside)
    spent = time.process_time() - began
    database.close()
    return spent


def _columns(turn: Turn) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rows of a turn that begins a session."""
    first = first_columns(turn, waits=State.OPEN, reason=None, now=turn.created)
    return first | _placed(turn), content_columns(turn)


def _calls(folder: Path, work: list[Turn]) -> float:
    """CPU seconds of the store, encoding included."""
    store = SqliteStore.open(folder / "plain.db", fingerprint=None)
    began = time.process_time()
    for turn in work:
        add_turn(store, turn)
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
                await store.call(lambda s, turn=turn: add_turn(s, turn))

        began = time.process_time()
        await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
        spent = time.process_time() - began
        await store.close()
        return spent

    return uvloop.run(run())


def add_turn(store: Store, turn: Turn) -> None:
    store.add_turn(turn, **_placed(turn), reason=None, now=turn.created)


def _placed(turn: Turn) -> dict[str, Any]:
    """The hashes that find a turn: like real ones, each at a place of its own in an index."""
    number = int(turn.id[1:])
    return {
        "prompt_hash": (number * 2654435761 % 2**64).to_bytes(16, "big"),
        "full_hash": (number * 11400714819323198485 % 2**64).to_bytes(16, "big"),
        "depth": 4,
        "full_depth": 5,
        "delivered": True,
    }


def _record(turn: Turn) -> bytes:
    columns = content_columns(turn).values()
    return b"".join(value if isinstance(value, bytes) else str(value).encode() for value in columns)


def _session(number: int) -> list[Turn]:
    """The turns of a session that grows to 25,000 tokens: each adds a response and a message."""
    random = Random(number)
    said = [Message(role="system", content=passage(random, 20_000))]
    ids = drawn(random, 6_000, VOCABULARY)
    turns: list[Turn] = []
    for step in range(STEPS):
        said += [Message(role=role, content=passage(random, 600)) for role in ("user", "assistant")]
        ids += drawn(random, 320, VOCABULARY)
        parent = turns[-1].id if turns else None
        turns.append(_of(number * STEPS + step, said[:-1], ids, session=f"s{number}", parent=parent))
    return turns


def begun_turn(number: int) -> Turn:
    """A conversation of about 4.5 KB, its ids and a response: about 10 KB stored."""
    words = "The test fails because the fixture is opened twice, see line forty two. " * 15
    said = [Message(role=role, content=words) for role in ("system", "user", "assistant", "user")]
    ids = tuple((number * 7919 + place * 104729) % VOCABULARY for place in range(TOKENS_OF_PROMPT))
    return _of(number, said, ids, session=f"s{number}", parent=None)


def _of(
    number: int, said: Sequence[Message], ids: tuple[int, ...], *, session: str, parent: str | None
) -> Turn:
    sampled = Sampled(
        ids=ids[:TOKENS_OF_RESPONSE],
        logprobs=tuple(-token / VOCABULARY for token in ids[:TOKENS_OF_RESPONSE]),
        versions=(number // 64,) * TOKENS_OF_RESPONSE,
        forced=(False,) * TOKENS_OF_RESPONSE,
    )
    return Turn(
        id=f"t{number:024d}",
        scope="key/agent",
        session=session,
        parent=parent,
        kind=Kind.MAIN,
        created=float(number),
        model="policy",
        conversation=Conversation(messages=tuple(said)),
        prompt_ids=ids,
        sampling=Sampling(max_tokens=512),
        sampled=sampled,
        message=Message(role="assistant", content=(said[-1].content or "")[:600]),
        finish=Finish.STOP,
    )
