"""Replayed turns, and the gate before an update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from afterwit.lifecycle import Reason
from afterwit.objective.settings import ObjectiveSettings
from afterwit.verdict import JudgedTurn
from tests.learning.stage.learning import (
    Place,
    fill,
    states,
    trained,
)


def test_replayed_turns_are_named_as_such_and_only_those_fresh_enough_join(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    place = place.but(replay=3, max_staleness=1, batch=2)
    fill(place, samples(0, 1))
    fill(place, samples(2, 3, version=1, hints=()))
    fill(place, samples(4, 5, version=2))
    place.drain()
    first, second, third = place.versions.all()[1:]
    assert first.replayed == ()
    assert set(second.replayed) == {"turn0000", "turn0001"}
    assert third.replayed == ()  # version 0 is two behind, turns 2 and 3 lack hints
    assert second.turns == ("turn0002", "turn0003")
    assert second.metrics["samples"] == 4.0
    with place.store() as store:
        assert store.turn("turn0000").trained_in == (1,)
        assert store.turn("turn0000").replayed_in == (2,)


@pytest.mark.parametrize(("gate", "updates"), [(True, 1), (False, 2)])
def test_the_gate_lets_no_update_pass_that_would_only_replay(
    place: Place, samples: Callable[..., list[JudgedTurn]], gate: bool, updates: int
) -> None:
    place = replace(place.but(replay=3, update_gate=gate, batch=2), objective=ObjectiveSettings(w_rl=0.0))
    fill(place, samples(0, 1))
    fill(place, samples(2, 3, hints=(), reward=1))
    place.drain()
    assert place.versions.newest() == updates
    assert [states(place)[turn] for turn in ("turn0002", "turn0003")] == [Reason.NO_SIGNAL] * 2
    assert trained(place) == [("turn0000", "turn0001"), ()][:updates]


def test_routed_turns_that_teach_nothing_neither_train_nor_open_the_gate(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    place = replace(
        place.but(replay=3, update_gate=True, batch=2), objective=ObjectiveSettings(routing="routed")
    )
    fill(place, samples(0, 1))
    fill(place, samples(2, 3, reward=1, logprobs=(-0.01,) * 6))
    place.drain()
    assert place.versions.newest() == 1
    assert [states(place)[turn] for turn in ("turn0002", "turn0003")] == [Reason.ALREADY_CONFIDENT] * 2
    assert trained(place) == [("turn0000", "turn0001")]


def test_a_batch_with_nothing_to_learn_makes_no_version(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    place = replace(place, objective=ObjectiveSettings(objective="rl"))
    fill(place, samples(0, 1, reward=0))
    place.drain()
    assert place.versions.newest() == 0
    assert set(states(place).values()) == {Reason.NO_SIGNAL}
