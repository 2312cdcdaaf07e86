"""An update is asked for what people approved before it becomes a version."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
import torch

from afterwit.core.lifecycle import Reason, State
from afterwit.core.promotion import Episode, Event, EventKind, Item, Standing
from afterwit.core.version import Origin
from afterwit.learner.suite import kept
from afterwit.learner.update.phase import Phase
from afterwit.stages.promotion import PromotionSettings
from afterwit.store import Store
from tests.fakes.judged_samples import store_judged
from tests.stages.learning import Place, fill, learn_and_die, states, status

WORDS = 6
RUIN = 3.0
"""A step that no model survives."""


def approved(number: int, ids: tuple[int, ...]) -> Item:
    return Item(
        turn=f"approved{number}",
        stratum="text",
        source=f"person{number}",
        version=0,
        since=float(number),
        prompt_ids=(5 + number, 6, 7),
        ids=ids,
        sure=(True,) * len(ids),
    )


def chosen(place: Place, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """What the newest version would say: its likeliest tokens."""
    model, ids = place.trainer().policy().model, list(prompt)
    with torch.no_grad():
        for _ in range(WORDS):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return tuple(ids[len(prompt) :])


def approve(place: Place, store: Store, count: int = 5) -> None:
    """People approved what the model says anyway."""
    for number in range(count):
        item = approved(number, chosen(place, (5 + number, 6, 7)))
        ended = Episode(
            turn=item.turn,
            session="s",
            source=item.source,
            version=0,
            bad=None,
            complaint=False,
            kind="text",
            approved=(),
        )
        store.end_episode(ended, [item], steps=[item.turn], now=item.since)


def test_a_policy_takes_what_it_would_say_and_not_what_it_would_not(place):
    policy = place.trainer().policy()
    same = approved(1, chosen(place, (6, 6, 7)))
    other = approved(2, tuple((id + 1) % 400 for id in chosen(place, (7, 6, 7))))
    assert kept(policy, [same, other], place.settings) == [(same, True), (other, False)]
    assert kept(policy, [], place.settings) == []


def test_an_update_that_loses_what_was_approved_becomes_no_version(place, samples):
    place = place.but(lr=RUIN)
    with place.store() as store:
        approve(place, store)
    fill(place, samples(*range(4)))
    place.drain()
    assert place.versions.newest() == 0
    assert set(states(place).values()) == {Reason.HELD_BACK}
    with place.store() as store:
        (event,) = store.events()
        said = status(store)
    assert (event.kind, event.version) == (EventKind.HOLD, 0)
    assert event.evidence > 20
    assert said.ok is False
    assert "held back" in said.message


def test_held_turns_go_back_on_request(place, samples):
    place = place.but(lr=RUIN)
    with place.store() as store:
        approve(place, store)
    fill(place, samples(*range(4)))
    place.drain()
    with place.store() as store:
        assert store.requeue(now=place.clock()) == 4
    assert set(states(place).values()) == {State.JUDGED}


def test_a_gentle_update_is_clean_and_says_so(place, samples):
    place = place.but(lr=1e-6)
    with place.store() as store:
        approve(place, store)
    fill(place, samples(*range(4)))
    place.drain()
    suite = place.versions.all()[-1].suite
    assert suite is not None
    assert (suite.standing, suite.lost) == (Standing.CLEAN, {"text": (0, 5)})


def test_switched_off_every_finite_update_is_served(place, samples):
    place = replace(place.but(lr=RUIN), promotion=PromotionSettings(enabled=False))
    with place.store() as store:
        approve(place, store)
    fill(place, samples(*range(4)))
    place.drain()
    assert place.versions.newest() == 1
    assert place.versions.all()[-1].suite is None


def test_after_eight_holds_in_a_row_learning_waits_for_a_person(place, samples):
    place = place.but(lr=RUIN, batch=1, min_batch=1, batches_per_update=1)
    with place.store() as store:
        approve(place, store)
    fill(place, samples(*range(10)))
    place.drain()
    found = list(states(place).values())
    assert (found.count(Reason.HELD_BACK), found.count(State.JUDGED)) == (8, 2)
    with place.store() as store:
        pause = store.resume()
    assert pause is not None
    assert pause.words.startswith("8 updates in a row were held back")
    place.drain()
    assert set(states(place).values()) == {Reason.HELD_BACK}


@pytest.mark.parametrize("phase", [Phase.SCORING, Phase.STEPPED])
def test_a_kill_before_a_hold_leaves_the_turns_waiting(place, samples, processes, phase):
    place = place.but(lr=RUIN)
    with place.store() as store:
        approve(place, store)
    fill(place, samples(*range(4)))
    child = processes.Process(target=learn_and_die, args=(place, phase, 1))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert set(states(place).values()) == {State.JUDGED}
    place.drain()
    assert set(states(place).values()) == {Reason.HELD_BACK}
    with place.store() as store:
        assert [event.kind for event in store.events()] == [EventKind.HOLD]


def test_an_alarm_takes_back_what_was_learned(place, samples):
    place = place.but(lr=1e-6)
    fill(place, samples(*range(8)))
    place.drain()
    assert place.versions.newest() == 2
    with place.store() as store:
        store.decided(Event(kind=EventKind.ALARM, at=1.0, version=2, evidence=21.0, words="too many"))
    fill(place, samples(*range(8, 12)))
    place.drain()
    versions = place.versions.all()
    assert [(version.origin, version.restores) for version in versions[3:]] == [
        (Origin.ROLLBACK, 0),
        (Origin.UPDATE, None),
    ]
    found = states(place)
    assert {found[f"turn{number:04d}"] for number in range(8)} == {Reason.REVERTED}
    assert {found[f"turn{number:04d}"] for number in range(8, 12)} == {State.TRAINED}


def test_the_brake_adds_the_reference_and_takes_two_thirds_of_the_rate(place, samples):
    place = replace(place.but(lr=1e-6), objective=replace(place.objective, beta=0.0))
    with place.store() as store:
        store.decided(Event(kind=EventKind.HOLD, at=1.0, version=0, evidence=21.0, words="lost"))
    fill(place, samples(*range(4)))
    place.drain()
    newest = place.versions.all()[-1]
    assert "kl" in " ".join(newest.metrics)
    assert newest.recipe is not None
    assert newest.recipe.learner["lr"] == pytest.approx(1e-6 / 3)
    with place.store() as store:
        stage = place.but(min_batch=1, max_wait_s=0.0).learn(store)
        stage.begin()
        store_judged(store, samples(4))
        assert stage.step()
        said = status(store)
    assert said.ok
    assert "the brake is on: learner.lr is 3.3e-07 and objective.beta 0.1" in said.message
