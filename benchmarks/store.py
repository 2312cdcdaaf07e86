"""What does one durable turn of 10 KB cost the store, in CPU time, against SQLite alone?

The floor inserts the same bytes, packed beforehand, into one table with one key, a transaction each. Variants
take turns within a run; process CPU time is counted; a run whose two floor timings differ by over a tenth is
thrown away. Left out: other processes, power loss (synchronous FULL).
`python benchmarks/store.py [--rows N] [--runs N] [--out FILE]`
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import platform
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from afterwit.core.message import Conversation, Message
from afterwit.core.turn import Finish, Kind, Sampled, Sampling, Turn
from afterwit.store import AsyncStore, Store
from afterwit.store.codec import content_columns

TOKENS_OF_PROMPT, TOKENS_OF_RESPONSE = 900, 180
TARGET_US, TARGET_ROWS_PER_S = 80.0, 3000.0
IN_FLIGHT = 32
TOLERANCE = 0.10


def turns(count: int) -> list[Turn]:
    """A conversation of about 4.5 KB, its ids and a response: about 10 KB stored."""
    words = "The test fails because the fixture is opened twice, see line forty two. " * 15
    return [_turn(number, words) for number in range(count)]


def _turn(number: int, words: str) -> Turn:
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


def record_bytes(turn: Turn) -> bytes:
    columns = content_columns(turn).values()
    return b"".join(value if isinstance(value, bytes) else str(value).encode() for value in columns)


def floor(folder: Path, work: list[Turn]) -> float:
    """CPU seconds of SQLite alone for the same bytes."""
    connection = sqlite3.connect(folder / "floor.db", isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE records (id TEXT PRIMARY KEY, data BLOB)")
    packed = [(turn.id, record_bytes(turn)) for turn in work]
    began = time.process_time()
    for row in packed:
        connection.execute("INSERT INTO records VALUES (?, ?)", row)
    spent = time.process_time() - began
    connection.close()
    return spent


def add(store: Store, turn: Turn) -> None:
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


def plain(folder: Path, work: list[Turn]) -> float:
    """CPU seconds of the store, encoding included."""
    store = Store.open(folder / "plain.db", fingerprint=None)
    began = time.process_time()
    for turn in work:
        add(store, turn)
    spent = time.process_time() - began
    store.close()
    return spent


def from_a_loop(folder: Path, work: list[Turn]) -> float:
    """CPU seconds through the writer thread with 32 calls in flight, the event loop's share included."""

    async def run() -> float:
        store = AsyncStore(Store.open(folder / "loop.db", fingerprint=None))
        waiting = iter(work)

        async def caller() -> None:
            for turn in waiting:
                await store.call(lambda s, turn=turn: add(s, turn))

        began = time.process_time()
        await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
        spent = time.process_time() - began
        await store.close()
        return spent

    return asyncio.run(run())


def one_run(work: list[Turn]) -> dict[str, float] | None:
    """CPU seconds per variant; None where the machine was not quiet."""
    with tempfile.TemporaryDirectory() as name:
        order: list[tuple[str, Callable[[Path, list[Turn]], float]]] = [
            ("floor", floor),
            ("plain", plain),
            ("from_a_loop", from_a_loop),
            ("floor_again", floor),
        ]
        spent = {}
        for variant, measure in order:
            folder = Path(name) / variant
            folder.mkdir()
            spent[variant] = measure(folder, work)
    first, second = spent["floor"], spent.pop("floor_again")
    return None if abs(first - second) > TOLERANCE * max(first, second) else spent


def summary(runs: list[dict[str, float]], rows: int) -> dict[str, Any]:
    """Per variant: microseconds of CPU per record, minimum, median and maximum, and rows per CPU second."""
    result: dict[str, Any] = {}
    for variant in ("floor", "plain", "from_a_loop"):
        each = [run[variant] / rows * 1e6 for run in runs]
        middle = statistics.median(each)
        result[variant] = {"us": [min(each), middle, max(each)], "rows_per_cpu_s": 1e6 / middle}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    work = turns(asked.rows)
    gc.freeze()  # the work itself is not the store's to walk through
    tried = [one_run(work) for _ in range(asked.runs)]
    runs = [run for run in tried if run is not None]
    if not runs:
        raise SystemExit("the machine was never quiet: the floor's two timings differed by more than a tenth")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    result = {
        "question": "CPU per durable 10 KB turn, microseconds: minimum, median, maximum",
        "commit": commit.stdout.strip(),
        "machine": {
            "platform": platform.platform(),
            "cpu": platform.processor(),
            "python": platform.python_version(),
        },
        "sqlite": sqlite3.sqlite_version,
        "record_bytes": len(record_bytes(work[0])),
        "rows": asked.rows,
        "runs": len(runs),
        "runs_rejected": len(tried) - len(runs),
        "target": {"us": TARGET_US, "rows_per_cpu_s": TARGET_ROWS_PER_S},
        "result": summary(runs, asked.rows),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if asked.out is not None:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
