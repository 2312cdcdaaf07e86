"""A learner whose versions other machines have too."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.manifest import STATE
from afterwit.checkpoints.remote import VersionsSettings
from afterwit.checkpoints.versions import Versions
from afterwit.learning.passes import Phase
from afterwit.lifecycle import State
from afterwit.verdict import JudgedTurn
from tests.checkpoints.places import PLACES
from tests.checkpoints.places import Place as Sharing
from tests.fakes.judged_samples import a_sample
from tests.learning.stage.learning import (
    Place,
    fill,
    learn_and_die,
    states,
    status,
    tensor_files,
    trained,
)

Samples = Callable[..., list[JudgedTurn]]


@pytest.fixture(params=PLACES, ids=lambda place: place.__name__)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> VersionsSettings:
    sharing: Sharing = request.param
    return sharing(tmp_path)


@pytest.fixture
def place(place: Place, shared: VersionsSettings) -> Place:
    return replace(place.but(lora_rank=4), shared=shared)


@pytest.fixture(scope="module")
def alone(base: Path, renderer: Renderer, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A learner's home after twelve turns, undisturbed and without a place to share versions at."""
    alone = Place(home=tmp_path_factory.mktemp("alone"), base=base).but(lora_rank=4)
    fill(alone, [a_sample(renderer, number) for number in range(12)])
    alone.drain()
    return alone


def other(place: Place, tmp_path: Path) -> Versions:
    """The versions as another machine sees them, which begins with an empty disk."""
    shutil.rmtree(tmp_path / "other", ignore_errors=True)
    versions = replace(place, home=tmp_path / "other").versions
    assert versions.remote is not None
    versions.follow()
    return versions


def test_another_machine_has_the_learners_very_weights(
    place: Place, alone: Place, samples: Samples, tmp_path: Path
) -> None:
    fill(place, samples(*range(12)))
    place.drain()
    there = other(place, tmp_path)
    assert trained(place) == trained(alone)
    assert there.all() == place.versions.all()
    for number in (1, 2, 3):
        there.weights(number, state=True)
        there.verify(number)
        assert tensor_files(there.place(number)) == tensor_files(alone.versions.place(number))


def test_a_learner_on_an_empty_disk_goes_on_to_the_bit(place: Place, alone: Place, samples: Samples) -> None:
    fill(place, samples(*range(8)))
    place.drain()
    shutil.rmtree(place.versions.root)
    fill(place, samples(*range(8, 12)))
    place.drain()
    assert trained(place) == trained(alone)
    assert tensor_files(place.versions.place(3)) == tensor_files(alone.versions.place(3))


def test_a_learner_that_finds_no_state_begins_its_optimiser_anew(
    place: Place, alone: Place, samples: Samples
) -> None:
    place = replace(place, shared=replace(place.shared, state_every=3))
    fill(place, samples(*range(8)))
    place.drain()
    shutil.rmtree(place.versions.root)
    fill(place, samples(*range(8, 12)))
    place.drain()
    assert trained(place) == trained(alone)
    assert not (place.versions.place(2) / STATE).exists()
    assert (place.versions.place(3) / STATE).exists()
    assert tensor_files(place.versions.place(2)).keys() < tensor_files(alone.versions.place(2)).keys()
    assert tensor_files(place.versions.place(3)) != tensor_files(alone.versions.place(3))


@pytest.mark.slow
def test_a_session_is_forgotten_here_and_there_though_an_optimiser_began_anew(
    place: Place, samples: Samples, tmp_path: Path
) -> None:
    """Updates that run again begin their optimiser where the first run did, or the probe would differ."""
    place = replace(place.but(keep_versions=1), shared=replace(place.shared, state_every=100))
    fill(place, samples(*range(8)))
    place.drain()
    shutil.rmtree(place.versions.root)
    fill(place, samples(*range(8, 16)))
    place.drain()
    recipes = [version.recipe for version in place.versions.all()[1:]]
    assert [recipe and recipe.fresh_optimizer for recipe in recipes] == [False, False, True, False]
    gone = place.versions.all()[4].turns[-1]
    with place.store() as store:
        session = store.turn(gone).turn.session
        forgotten = set(store.turn_ids(session))
        store.order_forgetting(session, replay=True, now=1.0)
        stage = place.learn(store)
        with place.versions.learning():
            stage.begin()
            (said,) = stage.forget()
    assert "is forgotten: version 5 is version 0 and 4 updates run again without it" in said
    there = other(place, tmp_path)
    assert there.all()[5].forgets == (session,)
    assert forgotten == {gone}
    assert [there.holds(number) for number in (4, 5)] == [False, True]


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("phase", "time"), [(Phase.WRITING, 2), (Phase.WRITTEN, 1), (Phase.COMMITTED, 2), (Phase.STEPPED, 2)]
)
def test_a_kill_loses_nothing_and_trains_nothing_twice(
    place: Place,
    alone: Place,
    samples: Samples,
    processes: ForkServerContext,
    phase: Phase,
    time: int,
    tmp_path: Path,
) -> None:
    fill(place, samples(*range(12)))
    process = processes.Process(target=learn_and_die, args=(place, phase, time))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    for number in other(place, tmp_path).numbers():
        there = other(place, tmp_path)
        there.weights(number, state=True)
        there.verify(number)
    shutil.rmtree(place.versions.root)
    place.drain()
    assert Counter(turn for turns in trained(place) for turn in turns) == dict.fromkeys(states(place), 1)
    assert set(states(place).values()) == {State.TRAINED}
    assert tensor_files(place.versions.place(3)) == tensor_files(alone.versions.place(3))


def kill_at(request: int, process: BaseProcess, asked: list[str], method: str, path: str) -> None:
    """Kill the process at its `request`th request, from the first one that publishes a version."""
    folder = path.split("/")[-2]
    if asked or (method == "PUT" and folder in ("files", "manifests")):
        asked.append(f"{method} {folder}")
        if len(asked) == request and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)


KILLS = 30
MOST_REQUESTS = 15
"""More than a learner makes from the first file of a version to the end of its sweep."""


@pytest.mark.cluster
@pytest.mark.timeout(1200)
def test_of_thirty_learners_killed_while_they_publish_no_half_version_is_seen_and_no_turn_trains_twice(
    place: Place, samples: Samples, processes: ForkServerContext, tmp_path: Path
) -> None:
    """Each is killed at another of its requests to the server, from the first file that it puts there."""
    if place.shared.endpoint is None:
        pytest.skip("a folder has no requests to be killed at")
    from tests.fakes.s3 import s3

    place = place.but(max_attempts=1000, max_staleness=1000, batches_per_update=1)
    killed_at = Counter[str]()
    for kill in range(KILLS):
        fill(place, samples(*range(4 * kill, 4 * kill + 4)))
        process = processes.Process(target=learn_and_die, args=(place, Phase.CLAIMED, 1000))
        asked: list[str] = []
        with s3().refusing(partial(kill_at, 1 + kill % MOST_REQUESTS, process, asked)):
            process.start()
            process.join()
        killed_at[asked[-1]] += process.exitcode == -signal.SIGKILL
        there = other(place, tmp_path)
        assert there.numbers() == list(range(len(there.numbers())))
        for number in there.numbers()[-2:]:
            there.weights(number, state=True)
            there.verify(number)
        if kill % 3 == 0:
            shutil.rmtree(place.versions.root)
    place.drain()
    print("killed at", dict(killed_at))
    assert killed_at.total() >= KILLS * 2 // 3
    assert Counter(turn for turns in trained(place) for turn in turns) == dict.fromkeys(states(place), 1)
    assert set(states(place).values()) == {State.TRAINED}
    named = {digest for each in place.versions.all() for digest in each.files.values()}
    assert set(there.remote.files()) <= named


@pytest.mark.cluster
@pytest.mark.parametrize(
    "refusal", [None, (507, "XMinioStorageFull"), (403, "AccessDenied"), (503, "SlowDown")]
)
def test_turns_wait_while_the_place_takes_nothing_and_are_learned_when_it_does(
    place: Place, samples: Samples, refusal: tuple[int, str] | None
) -> None:
    """`None`: nothing answers there at all."""
    if place.shared.endpoint is None:
        pytest.skip("a folder is no server")
    from tests.fakes.s3 import s3

    words = {
        None: "does not answer: Could not connect",
        "XMinioStorageFull": r"has no room .*; the turns wait",
        "AccessDenied": r"the credentials have to .*; the turns wait",
        "SlowDown": r"cannot take or give anything now .*; the turns wait",
    }[refusal and refusal[1]]
    trouble = ExitStack()
    rests = 0

    def rest(seconds: float) -> None:
        nonlocal rests
        rests += 1
        with place.store() as store:
            said = status(store)
        if rests == 1:
            fill(place, samples(*range(4)))
            refuses = s3().refusing(lambda method, path: refusal if method == "PUT" else None)
            trouble.enter_context(s3().away() if refusal is None else refuses)
        elif rests == 2:
            assert not said.ok
            assert re.search(words, said.message), said.message
            assert set(states(place).values()) == {State.JUDGED}
            assert place.versions.numbers() == [0]
            trouble.close()
            place.clock.now += place.settings.retry_s

    with place.store() as store, trouble:
        place.learn(store).run(lambda: rests >= 3, rest=rest)
        assert all(record.attempts == 0 for record in store.turns())
    assert set(states(place).values()) == {State.TRAINED}
