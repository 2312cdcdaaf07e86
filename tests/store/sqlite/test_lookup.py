"""Parents are found without reading the whole conversation."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from afterwit.store import Store
from afterwit.store.recording import FIRST_HASHES
from afterwit.store.sqlite import SqliteDatabase, SqliteStore, connect
from tests.store.examples import a_turn


def test_a_deep_conversation_spares_the_turns_long_before_its_parent(store: Store) -> None:
    hashes = [f"h{depth}".encode() for depth in range(300)]
    common = {"delivered": True, "reason": None, "now": 0.0}
    for depth in range(1, 299, 2):
        pair = {"prompt_hash": hashes[depth - 1], "full_hash": hashes[depth]}
        store.add_turn(a_turn(f"t{depth}"), **pair, depth=depth, full_depth=depth + 1, **common)
    assert len(store.candidates("key/agent", hashes, [])) <= FIRST_HASHES


def steps_of_a_lookup(path: Path, hashes: list[bytes]) -> int:
    """Hundreds of SQLite's own instructions: the same on any machine."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection = connect(path, "NORMAL")
    connection.set_progress_handler(count, 100)
    with closing(SqliteStore(SqliteDatabase(connection, path))) as store:
        assert store.candidates("key/agent", hashes, [])
    return steps


def test_a_prompt_that_was_repeated_often_takes_no_longer_to_look_up(tmp_path: Path) -> None:
    steps = []
    for repeats in (100, 1000):
        path = tmp_path / f"{repeats}.db"
        with closing(SqliteStore.open(path, fingerprint=None)) as store, store.transaction():
            for number in range(repeats):
                store.add_turn(
                    a_turn(f"t{number}"),
                    prompt_hash=b"p",
                    full_hash=b"f",
                    depth=1,
                    full_depth=2,
                    delivered=True,
                    reason=None,
                    now=0.0,
                )
        steps.append(steps_of_a_lookup(path, [b"p", b"f"]))
    assert steps[1] <= 1.2 * steps[0]
