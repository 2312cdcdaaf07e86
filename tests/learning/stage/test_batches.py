"""The turns of an update, and when it starts; at a stop the stage gives them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from afterwit.learning.claims import Claims
from afterwit.learning.passes import Phase
from afterwit.lifecycle import Reason, State
from afterwit.verdict import JudgedTurn
from tests.learning.stage.learning import (
    Place,
    fill,
    states,
    trained,
)


def test_judged_turns_become_versions_in_the_order_they_came(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(*range(10)))
    place.drain()
    assert trained(place) == [
        tuple(f"turn{number:04d}" for number in numbers) for numbers in ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9))
    ]
    assert set(states(place).values()) == {State.TRAINED}
    with place.store() as store:
        assert [version.trained for version in store.versions()] == [0, 4, 4, 2]


def test_a_surplus_waits_for_the_next_batch_and_for_its_time(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(*range(7)))
    with place.store() as store:
        place.clock.now = 2000.0 + 99
        learn = place.learn(store)
        with place.versions.learning():
            assert [learn.step(), learn.step()] == [True, False]
            place.clock.now += 1
            assert [learn.step(), learn.step()] == [True, False]
    assert [len(turns) for turns in trained(place)] == [4, 3]


def test_fewer_than_the_least_never_start_an_update(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(0))
    place.clock.now = 1e9
    with place.store() as store:
        assert not place.learn(store).step()
    assert states(place) == {"turn0000": State.JUDGED}


@pytest.mark.parametrize(
    ("phase", "stops"),
    [
        pytest.param(Phase.CLAIMED, True),
        pytest.param(Phase.SCORING, True, marks=pytest.mark.slow),
        pytest.param(Phase.STEPPED, True),
        pytest.param(Phase.WRITING, True, marks=pytest.mark.slow),
        pytest.param(Phase.WRITING, False),
    ],
)
def test_told_to_stop_a_learner_finishes_what_it_writes_and_gives_back_the_rest(
    place: Place, samples: Callable[..., list[JudgedTurn]], phase: Phase, stops: bool
) -> None:
    fill(place, samples(0, 1, 2, 3))
    told = False

    def watch(reached: Phase) -> None:
        nonlocal told
        told = told or (stops and reached is phase)

    with place.store() as store:
        place.learn(store, watch).run(lambda: told, follow=False)
        written = phase is Phase.WRITING or not stops
        assert place.versions.newest() == int(written)
        assert len(store.waiting(now=place.clock.now)) == (0 if written else 4)
        assert {record.attempts for record in store.turns()} == {0}


def test_turns_sampled_too_long_ago_are_skipped_and_the_others_train(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    place = place.but(max_staleness=1, batch=2)
    fill(place, samples(*range(5)))
    fill(place, samples(5, 6, 7, version=2))
    place.drain()
    found = states(place)
    assert [found[f"turn{number:04d}"] for number in range(8)] == [
        *[State.TRAINED] * 4,
        Reason.STALE,
        *[State.TRAINED] * 3,
    ]


@pytest.mark.parametrize(("reads_groups", "rewards"), [(True, (1, -1)), (False, ())])
def test_a_group_is_read_whole_if_the_baseline_reads_it(
    place: Place, samples: Callable[..., list[JudgedTurn]], reads_groups: bool, rewards: tuple[int, ...]
) -> None:
    (good,), (bad,) = samples(0, reward=1, hints=()), samples(0, reward=-1, hints=())
    fill(place, [good, replace(bad, turn=replace(bad.turn, id="retry", session="retry"))])
    with place.store() as store:
        claims = Claims(
            store,
            place.versions,
            place.settings,
            owner="learner",
            now=place.clock,
            reads_groups=reads_groups,
        )
        found = claims.samples(list(store.turns()))
    assert [sample.group_rewards for sample in found] == [rewards, rewards]
