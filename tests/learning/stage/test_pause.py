"""A person pauses learning: nothing is claimed, everything else goes on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from afterwit.learning.claims import STAGE
from afterwit.learning.passes import Phase
from afterwit.learning.schedule import note_of, with_note
from afterwit.learning.settings import LearnerSettings
from afterwit.lifecycle import State
from afterwit.verdict import JudgedTurn
from tests.learning.stage.learning import Place, fill, states, status


def test_a_paused_learner_claims_nothing_says_so_and_goes_on_when_it_is_resumed(
    place: Place, samples: Callable[..., list[JudgedTurn]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    fill(place, samples(0, 1, 2, 3))
    said: list[str] = []

    def rest(seconds: float) -> None:
        said.append(status(store).message)
        if len(said) == 2:
            assert set(states(place).values()) == {State.JUDGED}
            store.resume()

    with place.store() as store:
        store.pause("the words of Monday are wrong", now=1.0)
        place.learn(store).run(lambda: len(said) == 3, rest=rest)
    assert said[0] == said[1]
    assert said[0].startswith("learning is paused (the words of Monday are wrong); ")
    assert said[2].startswith("version 1; no judged turn waits")
    assert set(states(place).values()) == {State.TRAINED}
    assert caplog.text.count("learning is paused") == 1


def test_an_update_that_has_begun_is_finished(place: Place, samples: Callable[..., list[JudgedTurn]]) -> None:
    fill(place, samples(*range(8)))
    with place.store() as store:

        def watch(phase: Phase) -> None:
            if phase is Phase.CLAIMED:
                store.pause("", now=1.0)

        learn = place.learn(store, watch)
        assert learn.step()
        assert not learn.step()
    assert list(states(place).values()).count(State.TRAINED) == 4


def test_a_pause_between_the_choice_and_the_claim_holds(
    place: Place, samples: Callable[..., list[JudgedTurn]]
) -> None:
    fill(place, samples(0, 1, 2, 3))
    with place.store() as store:
        learn = place.learn(store)
        choice = learn._claims.choose(drain=True)
        store.pause("", now=1.0)
        assert learn._claims.take(choice) == []
        store.resume()
        assert len(learn._claims.take(choice)) == 4


def test_a_learner_notes_the_settings_that_choose_its_next_update(place: Place) -> None:
    with place.store() as store:
        place.but(batch=7).learn(store)
        assert with_note(LearnerSettings(), store.note(STAGE)).batch == 7
    assert with_note(LearnerSettings(), None) == LearnerSettings()
    assert with_note(LearnerSettings(), note_of(LearnerSettings())) == LearnerSettings()
