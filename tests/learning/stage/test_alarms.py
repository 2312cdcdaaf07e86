"""Engine and learner disagree about the same weights."""

from __future__ import annotations

from collections.abc import Callable

from afterwit.lifecycle import State
from afterwit.verdict import JudgedTurn
from tests.learning.stage.learning import (
    Place,
    fill,
    states,
    status,
)


def test_an_engine_that_disagrees_with_the_learner_is_an_alarm(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(0, 1))
    with place.store() as store:
        place.but(mismatch_alarm=0.001).learn(store).step(follow=False)
        version = store.versions()[-1]
        assert version.metrics["mismatch_mean"] <= version.metrics["mismatch_max"]
        assert not status(store).ok
        assert f"{version.metrics['mismatch_fresh']:.3g} nats" in status(store).message
    assert set(states(place).values()) == {State.TRAINED}


def test_tokens_of_older_versions_raise_no_alarm_for_the_policy_has_moved(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(0, 1))
    fill(place, samples(2, 3))
    with place.store() as store:
        learn = place.but(mismatch_alarm=100.0, batch=2).learn(store)
        assert learn.step(follow=False)
        quick = place.but(mismatch_alarm=0.001, batch=2).learn(store)
        assert quick.step(follow=False)
        assert "mismatch_fresh" not in store.versions()[-1].metrics
        assert status(store).ok
