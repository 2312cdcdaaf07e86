"""Everything is killed, again and again: what was acknowledged stays, and nothing trains twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import pytest

from afterwit.lifecycle import State
from tests.processes import PROCESSES
from tests.store.examples import a_turn
from tests.store.places import Place, Schema
from tests.store.postgresql import town
from tests.store.postgresql.server import Server
from tests.store.worker import manifests, noted

LATER = 1e10
"""Past every lease."""


@pytest.fixture
def own_server() -> Any:
    """Not the session's: others' tests are not killed with it."""
    made = Server()
    yield made
    made.remove()


class Town:
    """Two gateways, two judges, a learner and a publisher, each a process."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.folder = folder
        self._work: dict[str, tuple[Callable[..., None], tuple[Any, ...]]] = {
            "gateway one": (town.gateway, (place, folder, "a")),
            "gateway two": (town.gateway, (place, folder, "b")),
            "judge one": (town.judge, (place, folder, "one")),
            "judge two": (town.judge, (place, folder, "two")),
            "learner": (town.learner, (place, folder)),
            "publisher": (town.publisher, (place, folder)),
        }
        self._processes: dict[str, Any] = {}
        for name in self._work:
            self._start(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()

    @property
    def clients(self) -> list[str]:
        return list(self._work)

    def _start(self, name: str) -> None:
        work, arguments = self._work[name]
        self._processes[name] = PROCESSES.Process(target=work, args=arguments, daemon=True)
        self._processes[name].start()

    def kill(self, name: str) -> None:
        """And start it again."""
        process = self._processes[name]
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        self._start(name)

    def lives_on(self, *, turns: int, versions: int) -> None:
        """Wait for this many more of both; all processes run meanwhile."""
        then = self._lived()
        while any(
            now < before + more
            for now, before, more in zip(self._lived(), then, (turns, versions), strict=True)
        ):
            assert {process.exitcode for process in self._processes.values()} == {None}
            time.sleep(0.05)

    def _lived(self) -> tuple[int, int]:
        """How many turns were acknowledged, and how many versions written."""
        return len(noted(self.folder / "acknowledged")), len(manifests(self.folder))

    def stop(self) -> None:
        (self.folder / town.STOP).touch()
        for process in self._processes.values():
            process.join()
        assert {process.exitcode for process in self._processes.values()} == {0}


def storm(server: Server, folder: Path, kills: int) -> None:
    """Kill the server `kills` times, and a client after each time."""
    chance = random.Random(0)
    place = Schema(server.url(server.empty_schema()))
    place.open().close()
    with Town(place, folder) as lived:
        lived.lives_on(turns=1, versions=2)
        for _ in range(kills):
            server.kill()
            server.start()
            lived.lives_on(turns=chance.randint(1, 9), versions=1)
            lived.kill(chance.choice(lived.clients))
            lived.lives_on(turns=10, versions=chance.randint(0, 2))
        lived.stop()
    finish(place, folder)
    check(place, folder)


def finish(place: Place, folder: Path) -> None:
    """Judge and train what is left."""
    (folder / town.STOP).unlink()
    with closing(place.open()) as store:
        store.reconcile(manifests(folder), now=LATER)
        while town.judge_some(store, "last", LATER):
            pass
        while town.learn_some(store, folder, LATER):
            pass


def check(place: Place, folder: Path) -> None:
    trained = [turn for manifest in manifests(folder) for turn in manifest.turns]
    assert len(trained) == len(set(trained))
    with closing(place.open()) as store:
        records = {record.turn.id: record for record in store.turns()}
        for name in noted(folder / "acknowledged"):
            assert records[name].turn == a_turn(name)
        assert {name for name, record in records.items() if record.state is State.TRAINED} == set(trained)
        assert {name for name, record in records.items() if record.next_state} == set(trained)
        counts = {version.number: version.trained for version in store.versions()}
        assert counts == {manifest.number: len(manifest.turns) for manifest in manifests(folder)}
        assert store.latest_published() > 0


def test_killed_servers_and_clients_lose_and_repeat_nothing(own_server: Server, tmp_path: Path) -> None:
    storm(own_server, tmp_path, 3)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_thirty_killed_servers_and_clients_lose_and_repeat_nothing(
    own_server: Server, tmp_path: Path
) -> None:
    storm(own_server, tmp_path, 30)
