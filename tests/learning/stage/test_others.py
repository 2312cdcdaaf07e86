"""Others at work next to the learner: rollbacks, feedback, a second learner, lost files."""

from __future__ import annotations

from collections.abc import Callable

from afterwit.checkpoints.versions import roll_back
from afterwit.learning.passes import Phase
from afterwit.lifecycle import Reason, State
from afterwit.verdict import Feedback, JudgedTurn
from tests.fakes.judged_samples import store_judged
from tests.learning.stage.learning import (
    Place,
    fill,
    states,
    trained,
)


def test_a_rollback_is_noticed_and_its_turns_do_not_train_again(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(*range(8)))
    with place.store() as store:
        learn = place.learn(store)
        assert learn.step(follow=False)
        assert learn.step(follow=False)
        roll_back(place.versions, 1, now=6000.0)
        store_judged(store, samples(8, 9))
        assert learn.step(follow=False)
        assert [version.number for version in store.versions()] == [1, 2, 3, 4]
    found = states(place)
    assert {found[f"turn{number:04d}"] for number in range(4, 8)} == {Reason.REVERTED}
    fourth = place.versions.get(4)
    assert fourth is not None
    assert (fourth.parent, fourth.turns) == (3, ("turn0008", "turn0009"))


def test_a_rollback_during_an_update_wins_and_the_batch_trains_on_its_weights(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(0, 1))
    place.drain()
    fill(place, samples(2, 3))
    pending = [True]

    def watch(phase: Phase) -> None:
        if phase is Phase.STEPPED and pending and pending.pop():
            roll_back(place.versions, 0, now=6000.0)

    with place.store() as store:
        learn = place.learn(store, watch)
        assert learn.step(follow=False)
        assert place.versions.newest() == 2
        assert learn.step(follow=False)
    assert states(place) == {
        "turn0000": Reason.REVERTED,
        "turn0001": Reason.REVERTED,
        "turn0002": State.TRAINED,
        "turn0003": State.TRAINED,
    }
    assert trained(place) == [("turn0000", "turn0001"), (), ("turn0002", "turn0003")]


def test_feedback_that_comes_during_the_update_is_too_late_to_train(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(0, 1))

    def watch(phase: Phase) -> None:
        if phase is Phase.STEPPED:
            with place.store() as other:
                _, judged_again = other.feedback("turn0000", Feedback(reward=1), now=5001.0)
                assert not judged_again

    with place.store() as store:
        place.learn(store, watch).step(follow=False)
    assert set(states(place).values()) == {State.TRAINED}


def test_a_lost_version_gives_its_turns_back(place: Place, samples: Callable[..., list[JudgedTurn]]) -> None:
    fill(place, samples(0, 1))
    place.drain()
    for path in place.versions.place(1).iterdir():
        path.unlink()
    place.drain()
    assert trained(place) == [("turn0000", "turn0001")]
    assert place.versions.has_weights(1)
