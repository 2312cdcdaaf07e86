"""Real processes, really killed: what was acknowledged stays, nothing trains twice, claims never overlap."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
from pathlib import Path

import pytest

from afterwit.core.lifecycle import State
from afterwit.store import Store
from afterwit.store.sqlite import SqliteStore
from tests.store.examples import NO, a_turn, add
from tests.store.sqlite.worker import (
    PROCESSES,
    claim_until_empty,
    fill_the_disk,
    manifests,
    noted,
    open_on_a_full_disk,
    run,
    whole_loop,
    write_until_killed,
)

KILLED = -signal.SIGKILL
TURNS = 3
SOME = 7
"""Places at which the fast suite kills: the contract suite crashes between all calls without a process."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "versions"
    made.mkdir()
    return made


def sound(path: Path) -> bool:
    connection = sqlite3.connect(path)
    found = connection.execute("PRAGMA integrity_check").fetchall()
    connection.close()
    return found == [("ok",)]


def check_acknowledged(path: Path, folder: Path) -> None:
    store = SqliteStore.open(path, fingerprint="model")
    for name in noted(folder / "acknowledged"):
        assert store.turn(name).turn == a_turn(name)
    store.close()
    assert sound(path)


def check_trained_once(path: Path, folder: Path) -> None:
    trained = [turn for manifest in manifests(folder) for turn in manifest.turns]
    assert sorted(trained) == [f"t{number}" for number in range(TURNS)]
    store = SqliteStore.open(path, fingerprint="model")
    assert store.counts().states == {State.TRAINED: TURNS}
    assert [row.trained for row in store.versions()] == [len(m.turns) for m in manifests(folder)]
    store.close()


def statements_of_the_loop(tmp_path: Path) -> int:
    path, folder = tmp_path / "whole" / "store.db", tmp_path / "whole" / "versions"
    folder.mkdir(parents=True)
    SqliteStore.open(path, fingerprint="model").close()
    assert run(whole_loop, path, folder, TURNS, None) == 0
    check_trained_once(path, folder)
    return int(noted(folder / "statements")[0])


def killed_at(tmp_path: Path, statement: int) -> None:
    path, folder = tmp_path / str(statement) / "store.db", tmp_path / str(statement) / "versions"
    folder.mkdir(parents=True)
    SqliteStore.open(path, fingerprint="model").close()
    assert run(whole_loop, path, folder, TURNS, statement) == KILLED
    check_acknowledged(path, folder)
    assert run(whole_loop, path, folder, TURNS, None) == 0
    check_acknowledged(path, folder)
    check_trained_once(path, folder)


def test_killed_at_some_statements_nothing_is_lost_and_nothing_trains_twice(tmp_path: Path) -> None:
    statements = statements_of_the_loop(tmp_path)
    for statement in range(1, statements + 1, max(1, statements // SOME)):
        killed_at(tmp_path, statement)


@pytest.mark.slow
def test_killed_at_each_statement_nothing_is_lost_and_nothing_trains_twice(tmp_path: Path) -> None:
    for statement in range(1, statements_of_the_loop(tmp_path) + 1):
        killed_at(tmp_path, statement)


@pytest.mark.slow
def test_killed_twice_in_a_row_nothing_is_lost_and_nothing_trains_twice(tmp_path: Path) -> None:
    chance = random.Random(0)
    whole = statements_of_the_loop(tmp_path)
    for round in range(30):
        path, folder = tmp_path / f"r{round}" / "store.db", tmp_path / f"r{round}" / "versions"
        folder.mkdir(parents=True)
        SqliteStore.open(path, fingerprint="model").close()
        for _ in range(4):
            run(whole_loop, path, folder, TURNS, chance.randint(1, whole))
            check_acknowledged(path, folder)
        assert run(whole_loop, path, folder, TURNS, None) == 0
        check_trained_once(path, folder)


def test_a_writer_killed_at_any_moment_loses_nothing_it_acknowledged(path: Path, folder: Path) -> None:
    chance = random.Random(0)
    acknowledged = folder / "acknowledged"
    for round in range(5):
        before = len(noted(acknowledged))
        process = PROCESSES.Process(target=write_until_killed, args=(path, folder, f"r{round}"))
        process.start()
        while len(noted(acknowledged)) < before + chance.randint(1, 60):
            assert process.exitcode is None
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        check_acknowledged(path, folder)
    assert len(noted(acknowledged)) >= 5


def claim_at_once(path: Path, folder: Path, count: int) -> None:
    """Several workers until nothing is left to claim; each notes its turns in a file of its own."""
    arguments = [(path, folder, f"worker{number}") for number in range(count)]
    workers = [PROCESSES.Process(target=claim_until_empty, args=each) for each in arguments]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * count


def test_processes_that_claim_at_once_never_get_the_same_turn(path: Path, folder: Path, store: Store) -> None:
    with store.transaction():
        for number in range(120):
            add(store, f"t{number}")
            store.answer(f"t{number}", NO, answered_by=None, now=0.0)
    claim_at_once(path, folder, 4)
    claimed = [name for number in range(4) for name in noted(folder / f"worker{number}")]
    assert sorted(claimed) == sorted(f"t{number}" for number in range(120))


def test_two_processes_that_create_the_store_at_once_share_it(path: Path, folder: Path) -> None:
    claim_at_once(path, folder, 6)
    assert [file.name for file in path.parent.iterdir() if file.name.startswith(".")] == []


def test_a_full_disk_is_said_in_plain_words_and_writing_goes_on_when_there_is_room(
    path: Path, folder: Path
) -> None:
    assert run(fill_the_disk, path, folder) == 0
    (error,) = noted(folder / "error")
    assert "could not be written" in error
    assert "Free some disk space" in error
    assert len(noted(folder / "acknowledged")) > 3
    check_acknowledged(path, folder)


def test_a_store_that_cannot_be_created_for_lack_of_room_leaves_nothing(path: Path, folder: Path) -> None:
    assert run(open_on_a_full_disk, path, folder) == 0
    (error,) = noted(folder / "error")
    assert "could not be written" in error
    assert list(path.parent.iterdir()) == []
