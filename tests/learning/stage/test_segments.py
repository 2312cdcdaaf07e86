"""Turns of a session that wait for each other and train in one update."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from statistics import fmean

import pytest

from afterwit.learning.passes import Phase
from afterwit.verdict import JudgedTurn
from tests.fakes.judged_samples import session, store_judged
from tests.fakes.models import tiny_llama
from tests.fakes.renderers import renderer_of
from tests.learning.stage.learning import SETTINGS, Place, learn_and_die
from tests.products import some


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose template never takes back what it has written: prompts of a session only grow."""
    return tiny_llama(tmp_path_factory.mktemp("base"), num_hidden_layers=1)


@pytest.fixture(scope="module")
def people(base: Path) -> list[JudgedTurn]:
    """Four people talk at once: the first turn of each, the second of each, ..."""
    renderer = renderer_of(base)
    talks = [session(renderer, name, 4, words=12) for name in "abcd"]
    return [sample for each in zip(*talks, strict=True) for sample in each]


def talk(place: Place, turns: Iterable[JudgedTurn], *, learns: bool = True) -> None:
    """People at work; a learner that looks after every turn."""
    with place.store() as store, place.versions.learning():
        learn = place.learn(store)
        for sample in turns:
            store_judged(store, [sample], now=place.clock.now, answered_by="the next request")
            place.clock.now += 1
            if learns:
                learn.step()


def updates(place: Place) -> list[str]:
    """The turns of each, as one word."""
    return [" ".join(version.turns) for version in place.versions.all() if version.number > 0]


def ratios(place: Place) -> list[float]:
    return [version.metrics["token_ratio"] for version in place.versions.all() if version.number > 0]


def test_updates_share_the_more_the_more_turns_of_a_session_wait_for_each_other(
    place: Place, people: list[JudgedTurn]
) -> None:
    found = {}
    for segments in (1, 4):
        here = replace(place, home=place.home / str(segments)).but(turns_per_session_per_update=segments)
        talk(here, people)
        assert Counter(" ".join(updates(here)).split()) == {sample.turn.id: 1 for sample in people}
        found[segments] = fmean(ratios(here))
    assert found[1] < 0.64 * found[4]


def test_with_one_segment_updates_take_turns_as_they_come_whosoever_they_are(
    place: Place, people: list[JudgedTurn]
) -> None:
    talk(place, people)
    assert updates(place) == ["a0 b0 c0 d0", "a1 b1 c1 d1", "a2 b2 c2 d2", "a3 b3 c3 d3"]


def test_with_more_they_take_sessions_in_parts(place: Place, people: list[JudgedTurn]) -> None:
    talk(place.but(turns_per_session_per_update=2), people)
    assert updates(place) == ["a0 b0 a1 b1", "c0 d0 c1 d1", "a2 b2 a3 b3", "c2 d2 c3 d3"]


def test_turns_that_were_held_back_train_after_the_longest_wait(
    place: Place, people: list[JudgedTurn]
) -> None:
    place = place.but(turns_per_session_per_update=4)
    talk(place, people[:6])
    assert updates(place) == []
    place.clock.now += SETTINGS.max_wait_s - 6
    talk(place, [])
    with place.store() as store:
        assert place.learn(store).step()
    assert updates(place) == ["a0 a1"]


def test_a_learner_that_drains_the_store_holds_nothing_back(place: Place, people: list[JudgedTurn]) -> None:
    place = place.but(turns_per_session_per_update=4)
    talk(place, people[:6])
    assert updates(place) == []
    place.drain()
    assert updates(place) == ["a0 b0 a1 b1", "c0 d0"]


@pytest.fixture(scope="module")
def undisturbed(base: Path, people: list[JudgedTurn], tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The same turns, learned without a kill."""
    place = Place(home=tmp_path_factory.mktemp("undisturbed"), base=base).but(turns_per_session_per_update=3)
    talk(place, people, learns=False)
    place.drain()
    return place


@pytest.mark.parametrize(
    ("phase", "time"),
    some(3, [pytest.param(Phase.WRITTEN, 2), pytest.param(Phase.STEPPED, 1), pytest.param(Phase.CLAIMED, 2)]),
)
def test_a_kill_changes_no_batch(
    place: Place,
    people: list[JudgedTurn],
    undisturbed: Place,
    processes: ForkServerContext,
    phase: Phase,
    time: int,
) -> None:
    place = place.but(turns_per_session_per_update=3)
    talk(place, people, learns=False)
    process = processes.Process(target=learn_and_die, args=(place, phase, time))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    place.drain()
    assert updates(place) == updates(undisturbed)
    assert updates(place)[0] == "a0 a1 a2 a3"
