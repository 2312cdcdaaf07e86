"""Real processes, really killed: what was acknowledged stays, nothing trains twice, claims never overlap."""

from __future__ import annotations

import os
import random
import signal
from contextlib import closing
from pathlib import Path

import pytest

from afterwit.lifecycle import State
from tests.processes import PROCESSES
from tests.store.databases import DATABASES, KINDS, NEW
from tests.store.examples import NO, a_turn, add
from tests.store.places import Place
from tests.store.worker import (
    claim_until_empty,
    manifests,
    noted,
    run,
    whole_loop,
    write_until_killed,
)

KILLED = -signal.SIGKILL
TURNS = 3
SOME = 7
"""Places at which the fast suite kills: the contract suite crashes between all calls without a process."""


def check_acknowledged(place: Place, folder: Path) -> None:
    store = place.open()
    for name in noted(folder / "acknowledged"):
        assert store.turn(name).turn == a_turn(name)
    store.close()


def check_trained_once(place: Place, folder: Path) -> None:
    trained = [turn for manifest in manifests(folder) for turn in manifest.turns]
    assert sorted(trained) == [f"t{number}" for number in range(TURNS)]
    store = place.open()
    assert store.counts().states == {State.TRAINED: TURNS}
    assert [row.trained for row in store.versions()] == [len(m.turns) for m in manifests(folder)]
    store.close()


def statements_of_the_loop(kind: str, tmp_path: Path) -> int:
    place, folder = prepared(kind, tmp_path / "whole")
    assert run(whole_loop, place, folder, TURNS, None) == 0
    check_trained_once(place, folder)
    return int(noted(folder / "statements")[0])


def prepared(kind: str, home: Path) -> tuple[Place, Path]:
    """An empty store, and an empty folder of versions."""
    folder = home / "versions"
    folder.mkdir(parents=True)
    place = DATABASES[kind](home / "database").place
    place.open().close()
    return place, folder


def killed_at(kind: str, tmp_path: Path, statement: int) -> None:
    place, folder = prepared(kind, tmp_path / str(statement))
    assert run(whole_loop, place, folder, TURNS, statement) == KILLED
    check_acknowledged(place, folder)
    assert run(whole_loop, place, folder, TURNS, None) == 0
    check_acknowledged(place, folder)
    check_trained_once(place, folder)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_some_statements_nothing_is_lost_and_nothing_trains_twice(
    kind: str, tmp_path: Path
) -> None:
    statements = statements_of_the_loop(kind, tmp_path)
    for statement in range(1, statements + 1, max(1, statements // SOME)):
        killed_at(kind, tmp_path, statement)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_each_statement_nothing_is_lost_and_nothing_trains_twice(kind: str, tmp_path: Path) -> None:
    for statement in range(1, statements_of_the_loop(kind, tmp_path) + 1):
        killed_at(kind, tmp_path, statement)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_twice_in_a_row_nothing_is_lost_and_nothing_trains_twice(kind: str, tmp_path: Path) -> None:
    chance = random.Random(0)
    whole = statements_of_the_loop(kind, tmp_path)
    for round in range(30):
        place, folder = prepared(kind, tmp_path / f"r{round}")
        for _ in range(4):
            run(whole_loop, place, folder, TURNS, chance.randint(1, whole))
            check_acknowledged(place, folder)
        assert run(whole_loop, place, folder, TURNS, None) == 0
        check_trained_once(place, folder)


@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_killed_at_any_moment_loses_nothing_it_acknowledged(kind: str, tmp_path: Path) -> None:
    place, folder = prepared(kind, tmp_path)
    chance = random.Random(0)
    acknowledged = folder / "acknowledged"
    for round in range(5):
        before = len(noted(acknowledged))
        process = PROCESSES.Process(target=write_until_killed, args=(place, folder, f"r{round}"))
        process.start()
        while len(noted(acknowledged)) < before + chance.randint(1, 60):
            assert process.exitcode is None
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        check_acknowledged(place, folder)
    assert len(noted(acknowledged)) >= 5


def claim_at_once(place: Place, folder: Path, count: int) -> None:
    """Several workers until nothing is left to claim; each notes its turns in a file of its own."""
    arguments = [(place, folder, f"worker{number}") for number in range(count)]
    workers = [PROCESSES.Process(target=claim_until_empty, args=each) for each in arguments]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * count


@pytest.mark.parametrize("kind", KINDS)
def test_processes_that_claim_at_once_never_get_the_same_turn(kind: str, tmp_path: Path) -> None:
    place, folder = prepared(kind, tmp_path)
    with closing(place.open()) as store, store.transaction():
        for number in range(120):
            add(store, f"t{number}")
            store.answer(f"t{number}", NO, answered_by=None, now=0.0)
    claim_at_once(place, folder, 4)
    claimed = [name for number in range(4) for name in noted(folder / f"worker{number}")]
    assert sorted(claimed) == sorted(f"t{number}" for number in range(120))


@pytest.mark.parametrize("kind", KINDS)
def test_processes_that_create_the_store_at_once_share_it(kind: str, tmp_path: Path) -> None:
    claim_at_once(NEW[kind](tmp_path), tmp_path, 6)
    assert list(tmp_path.glob("store/.*")) == []
