"""Verdicts end episodes; episodes raise alarms and confirm versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from afterwit.core.lifecycle import Reason
from afterwit.core.message import Message
from afterwit.core.promotion import BadEnd, Event, EventKind
from afterwit.core.teaching import Flag
from afterwit.core.turn import Finish, Sampled
from afterwit.core.verdict import Feedback, Source, Verdict
from afterwit.stages.promotion import PromotionSettings, WatchOver
from afterwit.store import Store
from afterwit.store.sqlite import SqliteStore
from tests.store.examples import HINTED, NO, PRAISED, THANKS, a_version, add

TOOL = (Message(role="tool", content="ok", tool_call_id="c1"),)
PANNED = Verdict(reward=-1, source=Source.VOTES)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = SqliteStore.open(tmp_path / "store.db", fingerprint="tiny")
    yield opened
    opened.close()


class Person:
    """Makes turns, and has them judged under a watch."""

    def __init__(self, store: Store, **settings: object) -> None:
        self.store = store
        self.watch = WatchOver(PromotionSettings(**settings))  # type: ignore[arg-type]
        self.count = 0

    def turn(
        self,
        verdict: Verdict,
        followed: tuple[Message, ...],
        *,
        version: int = 0,
        flags: Sequence[Flag] = (),
        **changes: object,
    ) -> str:
        self.count += 1
        id = f"t{self.count:03}"
        sampled = Sampled(ids=(4, 5), logprobs=(-0.01, -0.5), versions=(version,) * 2, forced=(False, False))
        add(self.store, id, sampled=sampled, **changes)
        now = float(self.count)
        self.store.answer(id, followed, answered_by=None, now=now)
        self.store.claim("judge", owner="judge", limit=1, lease_s=60, now=now)
        with self.store.transaction():
            opd = bool(verdict.hints)
            self.store.judged(id, verdict, rl=True, opd=opd, reason=None, owner="judge", now=now, flags=flags)
            self.watch.judged(self.store, id, now=now)
        return id

    def well(self, count: int, *, version: int = 0) -> None:
        for _ in range(count):
            self.turn(PRAISED, THANKS, version=version)

    def badly(self, count: int) -> None:
        for _ in range(count):
            self.turn(PANNED, NO, version=1)


@pytest.fixture
def person(store: Store) -> Person:
    return Person(store)


def kinds(store: Store) -> list[EventKind]:
    return [event.kind for event in store.events()]


def test_a_tools_result_ends_no_episode_and_a_persons_thanks_does(store, person):
    first = person.turn(PRAISED, TOOL)
    assert store.episodes() == []
    last = person.turn(PRAISED, THANKS, parent=first)
    (ended,) = store.episodes()
    assert (ended.turn, ended.bad) == (last, None)
    assert {item.turn for item in store.suite()} == {first, last}


def test_the_next_request_of_a_session_is_an_episode_of_its_own(store, person):
    first = person.turn(PRAISED, THANKS)
    last = person.turn(PANNED, NO, parent=first)
    assert [(each.turn, each.bad) for each in store.episodes()] == [
        (first, None),
        (last, BadEnd.DISPLEASED),
    ]
    assert [item.turn for item in store.suite()] == [first]


def test_a_complaint_with_a_hint_is_not_bad(store, person):
    person.turn(HINTED, NO)
    assert [each.bad for each in store.episodes()] == [None]
    assert store.suite() == []


def test_six_good_requests_confirm_the_version_that_served_the_first(store, person):
    person.well(5, version=2)
    assert kinds(store) == []
    person.well(3, version=3)
    assert [(event.kind, event.version) for event in store.events()] == [(EventKind.CONFIRM, 2)]


def test_a_confirmed_version_retires_what_it_lost_if_that_was_approved_twice_since(store, person):
    old = person.turn(PRAISED, THANKS)
    found = PromotionSettings().suite.result([(item, False) for item in store.suite()])
    store.commit_version(a_version(0, parent=None), now=1.0)
    store.commit_version(a_version(1, suite=found), now=1.0)
    assert old in {item.turn for item in store.suite()}
    person.badly(1)
    person.well(6, version=1)
    assert kinds(store) == [EventKind.CONFIRM]
    assert old not in {item.turn for item in store.suite()}


def test_a_request_whose_last_turn_was_never_judged_counts_only_if_it_ended_badly(store, person):
    def unjudged(id: str, thumb: int | None) -> None:
        add(store, id)
        store.answer(id, THANKS, answered_by=None, now=1.0)
        if thumb is not None:
            store.feedback(id, Feedback(reward=thumb), now=1.0)
        store.skip([id], Reason.HOLDS_SECRET, now=1.0)
        person.watch.judged(store, id, now=1.0)

    unjudged("unknown", None)
    unjudged("liked", 1)
    assert (store.episodes(), store.suite()) == ([], [])
    unjudged("disliked", -1)
    assert [(each.turn, each.bad) for each in store.episodes()] == [("disliked", BadEnd.DISPLEASED)]


def test_a_step_that_holds_a_secret_is_not_kept_with_what_was_approved(store, person):
    first = person.turn(PRAISED, TOOL)
    add(store, "secret", parent=first)
    store.answer("secret", TOOL, answered_by=None, now=1.0)
    store.skip(["secret"], Reason.HOLDS_SECRET, now=1.0)
    last = person.turn(PRAISED, THANKS, parent="secret")
    assert {item.turn for item in store.suite()} == {first, last}


def test_many_bad_requests_after_learning_are_an_alarm_once(store, person):
    store.commit_version(a_version(0, parent=None), now=1.0)
    person.well(5)
    store.commit_version(a_version(1), now=1.0)
    person.badly(4)
    (alarm,) = store.events()
    assert (alarm.kind, alarm.version) == (EventKind.ALARM, 1)
    assert "the model as it came" in alarm.words
    assert "displeasure" in alarm.words
    assert store.episodes() == []


def test_displeasure_with_a_model_that_learned_nothing_is_no_alarm(store, person):
    person.badly(10)
    assert store.events() == []
    store.commit_version(a_version(0, parent=None), now=1.0)
    person.badly(1)
    assert store.events() == []


def test_an_alarm_right_after_falling_back_has_nothing_to_take_back(store, person):
    store.commit_version(a_version(0, parent=None), now=1.0)
    store.commit_version(a_version(1), now=1.0)
    store.commit_version(a_version(2, restores=0, reverts=(1,)), now=1.0)
    person.badly(10)
    assert store.events() == []


def test_an_agent_that_never_came_back_is_swept_up_after_a_while(store, person):
    add(store, "stuck", finish=Finish.TOOL_CALLS, now=0.0)
    assert person.watch.sweep(store, now=1000.0) == 0
    assert person.watch.sweep(store, now=2000.0) == 1
    assert person.watch.sweep(store, now=3000.0) == 0
    assert [(each.turn, each.bad) for each in store.episodes()] == [("stuck", BadEnd.NO_END)]


def test_switched_off_episodes_are_kept_and_nothing_follows_from_them(store):
    person = Person(store, enabled=False)
    person.well(8)
    add(store, "stuck", finish=Finish.TOOL_CALLS, now=0.0)
    assert person.watch.sweep(store, now=1e9) == 1
    assert len(store.episodes()) == 9
    assert store.events() == []


def test_the_sentence_of_an_event_names_no_words_of_people(store, person):
    store.commit_version(a_version(0, parent=None), now=1.0)
    store.commit_version(a_version(1), now=1.0)
    person.badly(12)
    said = NO[0].content
    assert all(said not in event.words for event in store.events())
    assert isinstance(store.events()[0], Event)


@pytest.mark.parametrize("approved", [True, False])
def test_hints_of_tools_alone_may_teach_once_the_person_approves_what_came_of_them(
    store: Store, approved: bool
) -> None:
    person = Person(store)
    step = person.turn(HINTED, TOOL, flags=(Flag.TOOL_WORDS,))
    good = Verdict(reward=0, source=Source.VOTES, hints=HINTED.hints)
    quiet = person.turn(good, TOOL, parent=step, flags=(Flag.TOOL_WORDS,))
    doubtful = person.turn(good, TOOL, parent=quiet, flags=(Flag.TOOL_WORDS, Flag.LINK))
    person.turn(PRAISED if approved else PANNED, THANKS if approved else NO, parent=doubtful)
    accepted = {turn: store.turn(turn).accepted for turn in (step, quiet, doubtful)}
    assert accepted == {step: None, quiet: True if approved else None, doubtful: None}
