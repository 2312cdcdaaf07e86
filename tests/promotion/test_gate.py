"""An update is tested on what people approved before it becomes a version."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.versions import Versions
from afterwit.judging.hinted_prompts import Placement, hinted_prompts
from afterwit.learning.passes import Phase
from afterwit.lifecycle import Reason, State
from afterwit.promotion.episodes import Episode, Event, EventKind
from afterwit.promotion.gate import Gate
from afterwit.promotion.suite import PromotionSettings, SuiteItem, Suspect
from afterwit.store import Store
from afterwit.turn import Message, Sampled, ToolCall
from afterwit.verdict import JudgedTurn
from afterwit.version import Origin, SuiteResult, Version
from tests.fakes.judged_samples import HINTS, a_sample, store_judged
from tests.learning.stage.learning import fill, learn_and_die, states, status
from tests.learning.updates import read_only

WORDS = 6
RUIN = 0.1
"""A step that no model survives."""


def approved(number: int, ids: tuple[int, ...]) -> SuiteItem:
    return SuiteItem(
        turn=f"approved{number}",
        stratum="text",
        source=f"person{number}",
        version=0,
        since=float(number),
        prompt_ids=(5 + number, 6, 7),
        ids=ids,
        sure=(True,) * len(ids),
    )


@pytest.fixture
def model(base: Path) -> torch.nn.Module:
    """The base, which serves before the first update."""
    return read_only(base, torch.float32)


@pytest.fixture(scope="module")
def sure(base: Path, renderer: Renderer) -> list[JudgedTurn]:
    """Turns that the base is sure of, and that a hint contradicts."""
    asked = (a_sample(renderer, number) for number in range(50, 90))
    return contradicting(read_only(base, torch.float32), renderer, asked)


def chosen(model: torch.nn.Module, prompt: tuple[int, ...]) -> tuple[int, ...]:
    """The model's greedy response."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(WORDS):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return tuple(ids[len(prompt) :])


def least_sure(model: torch.nn.Module, prompt: tuple[int, ...], ids: tuple[int, ...]) -> float:
    """The least probability that the model gives one of these tokens."""
    with torch.no_grad():
        given = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].softmax(dim=-1)
    return float(given[range(len(ids)), list(ids)].min())


def contradicting(
    model: torch.nn.Module, renderer: Renderer, samples: Iterable[JudgedTurn]
) -> list[JudgedTurn]:
    """The first five whose likeliest response the model is sure of, and would not give after the hint."""

    def contradicts(sample: JudgedTurn) -> bool:
        ((_, hinted),), _ = hinted_prompts(sample.turn, HINTS[:1], renderer, Placement.LAST_USER, 512)
        ids = chosen(model, sample.turn.prompt_ids)
        sure = least_sure(model, sample.turn.prompt_ids, ids)
        return sure > 0.7 and least_sure(model, hinted, ids) < 0.3

    return list(islice(filter(contradicts, samples), 5))


def approve(model: torch.nn.Module, store: Store, count: int = 5) -> None:
    """Add approvals of the model's own greedy responses."""
    for number in range(count):
        keep(store, approved(number, chosen(model, (5 + number, 6, 7))))


def keep(store: Store, item: SuiteItem) -> None:
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


def thank(
    model: torch.nn.Module, store: Store, samples: list[JudgedTurn], *, source: str, since: float = 10.0
) -> None:
    """A person approves the model's own greedy responses, in turns that the store holds."""
    for sample in samples:
        ids = chosen(model, sample.turn.prompt_ids)
        sure = Sampled(
            ids=ids, logprobs=(-0.01,) * len(ids), versions=(0,) * len(ids), forced=(False,) * len(ids)
        )
        turn = replace(sample.turn, sampled=sure, scope=source)
        store.add_turn(
            turn,
            prompt_hash=turn.id.encode().ljust(32, b"p"),
            full_hash=turn.id.encode().ljust(16, b"f"),
            depth=1,
            full_depth=2,
            delivered=True,
            reason=None,
            now=since,
        )
        keep(store, SuiteItem.of(turn, since=since))


def test_a_policy_takes_what_it_would_say_and_not_what_it_would_not(place, model):
    trainer = place.trainer()
    policy = trainer.policy()
    same = approved(1, chosen(model, (6, 6, 7)))
    other = approved(2, tuple((id + 1) % 400 for id in chosen(model, (7, 6, 7))))
    found = trainer.read(policy, [same, other])
    assert [(item, item.kept(each.logprobs)) for item, each in found] == [(same, True), (other, False)]
    assert trainer.read(policy, []) == []
    for item, each in found:  # the last place has the log-prob of the end in both
        assert (len(each.logprobs), len(each.ends)) == (len(item.ids), len(item.ids))
        assert each.ends[-1] == each.logprobs[-1]


@pytest.mark.parametrize(
    ("source", "since", "held"),
    [("test", 10.0, False), ("somebody else", 10.0, True), ("test", 1500.0, True)],
    ids=["what they complain of now", "what others approved", "what they approved after that complaint"],
)
def test_people_may_change_their_mind_about_what_they_approved_and_about_nothing_else(
    place, model, samples, sure, source, since, held
):
    place = place.but(lr=RUIN)
    with place.store() as store:
        thank(model, store, sure, source=source, since=since)
    fill(place, samples(*range(4)))
    place.drain()
    assert set(states(place).values()) == {State.OPEN, Reason.HELD_BACK if held else State.TRAINED}
    with place.store() as store:
        assert len(store.suite()) == (5 if held else 0)
        assert [event.kind for event in store.events()] == ([EventKind.HOLD] if held else [])


@pytest.mark.parametrize("hints", [(), HINTS], ids=["no hint", "a hint about another kind"])
def test_a_complaint_that_says_nothing_of_what_was_approved_lets_nothing_go(
    place, model, samples, sure, hints
):
    place = place.but(lr=1e-6)
    with place.store() as store:
        thank(model, store, sure, source="test")
    call = Message(role="assistant", content=None, tool_calls=(ToolCall(id="c", name="run", arguments="{}"),))
    said = {"message": call} if hints else {}
    fill(place, [replace(each, turn=replace(each.turn, **said)) for each in samples(*range(4), hints=hints)])
    place.drain()
    assert set(states(place).values()) == {State.OPEN, State.TRAINED}
    with place.store() as store:
        assert len(store.suite()) == 5


def test_what_was_lost_anyway_and_what_no_longer_renders_contradict_no_hint(place, model, sure):
    with place.store() as store:
        thank(model, store, sure[:1], source="test")
        (item,) = store.suite()
        turn = store.turn(item.turn).sampled_turn
    trainer = place.trainer()
    suspect = Suspect(item=item, turn=turn, hint=HINTS[0])
    assert trainer.contradicted([suspect]) == {item.turn}
    lost = replace(item, ids=tuple((id + 1) % 400 for id in item.ids))
    assert trainer.contradicted([suspect._replace(item=lost)]) == frozenset()
    elsewhere = replace(turn, prompt_ids=(1, *turn.prompt_ids))
    assert trainer.contradicted([suspect._replace(turn=elsewhere)]) == frozenset()


def test_an_update_that_loses_what_was_approved_becomes_no_version(place, model, samples):
    place = place.but(lr=RUIN)
    with place.store() as store:
        approve(model, store)
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


def test_held_turns_go_back_on_request(place, model, samples):
    place = place.but(lr=RUIN)
    with place.store() as store:
        approve(model, store)
    fill(place, samples(*range(4)))
    place.drain()
    with place.store() as store:
        assert store.requeue(now=place.clock()) == 4
    assert set(states(place).values()) == {State.JUDGED}


def test_the_manifest_of_a_gentle_update_says_that_it_lost_nothing(place, model, samples):
    place = place.but(lr=1e-6)
    with place.store() as store:
        approve(model, store)
    fill(place, samples(*range(4)))
    place.drain()
    suite = place.versions.all()[-1].suite
    assert suite is not None
    assert suite.lost == {"text": (0, 5)}


def test_switched_off_every_finite_update_is_served(place, model, samples):
    place = replace(place.but(lr=RUIN), promotion=PromotionSettings(enabled=False))
    with place.store() as store:
        approve(model, store)
    fill(place, samples(*range(4)))
    place.drain()
    assert place.versions.newest() == 1
    assert place.versions.all()[-1].suite is None


@pytest.mark.parametrize("phase", [Phase.SCORING, Phase.STEPPED])
def test_a_kill_before_a_hold_leaves_the_turns_waiting(place, model, samples, processes, phase):
    place = place.but(lr=RUIN)
    with place.store() as store:
        approve(model, store)
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


def test_after_a_hold_the_next_update_takes_a_third_of_the_rate_and_adds_the_reference(place, samples):
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
    assert "after holds or alarms learner.lr is 3.3e-07 and objective.beta 0.1 for now" in said.message


def versions_with(place, *suites: SuiteResult) -> Versions:
    """The place's versions, with an update for each of these results."""
    trainer = place.trainer()
    policy = trainer.policy()
    for number, suite in enumerate(suites, start=1):
        version = Version(
            number=number,
            parent=number - 1,
            origin=Origin.UPDATE,
            created=0.0,
            probe=trainer.probe(policy),
            suite=suite,
        )
        trainer.write(version, policy, lambda phase: None)
    return trainer.versions


def test_a_hold_takes_back_what_was_learned_since_a_version_that_lost_nothing(place):
    whole = SuiteResult(lost={"text": (0, 4)}, evidence=0.5)
    less = SuiteResult(lost={"text": (1, 4)}, evidence=1.0, lost_turns=("approved0",))
    versions = versions_with(place, whole, whole, less, less)
    with place.store() as store:
        gate = Gate(store, versions, PromotionSettings())
        assert gate.keep() == {0, 2}, "its weights stay, however many follow"
        gate.held(21.0, "it would have lost 3 of 4", now=1.0)
        made, words = gate.fall_back(now=2.0)
        assert (made.number, made.restores, made.reverts) == (5, 2, (3, 4))
        assert words.startswith("version 5 has the weights of version 2; taken back: 3, 4;")
        assert gate.fall_back(now=3.0) is None


@pytest.mark.parametrize(("length", "held"), [(0.4, True), (0.55, False), (1.3, False), (1.4, True)])
def test_an_update_whose_answers_shrink_or_grow_by_half_is_held_back(place, length, held):
    def result(length: float) -> SuiteResult:
        return SuiteResult(lost={"text": (0, 4)}, evidence=0.5, length=length)

    versions = versions_with(place, result(1.0), result(0.9))
    with place.store() as store:
        gate = Gate(store, versions, PromotionSettings())
        why = gate.why_held(result(length), turns=4)
        assert (why is not None) is held
        if why is not None:
            assert why.startswith(
                "an update of 4 turns was held back: answers as people approved them would be"
            )
