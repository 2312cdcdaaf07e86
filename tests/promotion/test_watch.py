"""Verdicts end episodes; episodes raise alarms and confirm versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from afterwit.lifecycle import Reason
from afterwit.promotion.episodes import BadEnd, Event, EventKind
from afterwit.promotion.suite import PromotionSettings, suite_result
from afterwit.promotion.watch import WatchOver
from afterwit.store import Store
from afterwit.store.sqlite import SqliteStore
from afterwit.turn import Finish, Message, Sampled, Sampling
from afterwit.verdict import Feedback, Flag, Source, Verdict
from tests.store.examples import HINTED, NO, PANNED, PRAISED, THANKS, a_version, add

TOOL = (Message(role="tool", content="ok", tool_call_id="c1"),)
COMPLAINT = Verdict(reward=-1, source=Source.VOTES)
"""Of an objective that reads no hints, so that none was asked for."""


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
        by = {"sampled": sampled_by(version, version)}
        add(self.store, id, **{**by, **changes})
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

    def badly(self, count: int, *, version: int = 1) -> None:
        for _ in range(count):
            self.turn(PANNED, NO, version=version)

    def until_alarm(self, *, version: int, most: int = 40) -> int:
        """Bad requests of a version until one more alarm."""
        before = kinds(self.store).count(EventKind.ALARM)
        for count in range(1, most + 1):
            self.badly(1, version=version)
            if kinds(self.store).count(EventKind.ALARM) > before:
                return count
        raise AssertionError(f"no alarm in {most} bad requests")


def sampled_by(*versions: int) -> Sampled:
    count = len(versions)
    return Sampled(ids=(4,) * count, logprobs=(-0.01,) * count, versions=versions, forced=(False,) * count)


def learn(store: Store, *numbers: int) -> None:
    for number in numbers:
        store.commit_version(a_version(number, parent=number - 1 if number else None), now=1.0)


def take_back(store: Store, number: int, *, to: int, reverts: Sequence[int]) -> None:
    store.commit_version(a_version(number, restores=to, reverts=tuple(reverts)), now=1.0)


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


def test_six_complaints_that_teach_confirm_nothing(store, person):
    for _ in range(12):
        person.turn(HINTED, NO, version=2)
    assert kinds(store) == []
    person.well(6, version=3)
    assert [(event.kind, event.version) for event in store.events()] == [(EventKind.CONFIRM, 3)]


def test_what_the_base_sampled_before_a_swap_does_not_count_against_the_version_that_ended_it(store, person):
    learn(store, 0, 1)
    for _ in range(8):
        person.turn(PANNED, NO, sampled=sampled_by(0, 0, 0, 0, 1))
    assert kinds(store) == []
    assert store.ended_badly(until=0) == (8, 8)


def test_answers_that_their_clients_wanted_no_longer_are_no_alarm(store, person):
    learn(store, 0, 1)
    asked = Sampling(max_tokens=2, limit_asked=True)
    for _ in range(12):
        person.turn(PRAISED, THANKS, version=1, finish=Finish.LENGTH, sampling=asked)
    assert EventKind.ALARM not in kinds(store)
    learn(store, 2)
    given = Sampling(max_tokens=2)
    for _ in range(12):
        person.turn(PRAISED, THANKS, version=2, finish=Finish.LENGTH, sampling=given)
    assert EventKind.ALARM in kinds(store)


def test_a_ruin_that_was_taken_back_is_no_measure_of_the_next(store, person):
    learn(store, 0)
    person.well(4)
    learn(store, 1, 2)
    person.well(6, version=1)
    first = person.until_alarm(version=2)
    take_back(store, 3, to=1, reverts=[2])
    learn(store, 4)
    person.well(6, version=4)
    assert kinds(store)[-1] is EventKind.CONFIRM
    learn(store, 5)
    assert person.until_alarm(version=5) == first


def test_a_version_is_taken_back_once_however_long_the_learner_takes_for_it(store, person):
    learn(store, 0, 1)
    person.badly(20)
    assert kinds(store) == [EventKind.ALARM]


def test_after_three_alarms_without_a_confirmation_learning_waits_for_a_person(store, person):
    learn(store, 0)
    for number in (1, 3, 5):
        assert store.paused() is None
        learn(store, number)
        person.until_alarm(version=number)
        take_back(store, number + 1, to=0, reverts=[number])
    pause = store.paused()
    assert pause is not None
    assert pause.words.startswith("3 times in a row more requests ended badly")
    assert "`afterwit resume`" in pause.words
    store.resume()
    learn(store, 7)
    person.until_alarm(version=7)
    assert store.paused() is None


def test_alarms_of_a_persons_own_adapter_pause_that_one_alone(store, person):
    learn(store, 0)
    for number in (1, 2, 3):
        store.commit_version(a_version(number, adapter="ann", parent=0), now=1.0)
        for _ in range(8):
            person.turn(PANNED, NO, version=number, adapter="ann")
    assert (store.paused(), list(store.paused_adapters())) == (None, ["ann"])


def test_a_confirmed_version_retires_what_it_lost_if_that_was_approved_twice_since(store, person):
    old = person.turn(PRAISED, THANKS)
    found = suite_result([(item, False) for item in store.suite()], may_lose=0.1)
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
    assert [(each.turn, each.bad) for each in store.episodes()] == [("disliked", BadEnd.UNASKED)]


def test_a_step_that_holds_a_secret_is_not_kept_with_what_was_approved(store, person):
    first = person.turn(PRAISED, TOOL)
    add(store, "secret", parent=first)
    store.answer("secret", TOOL, answered_by=None, now=1.0)
    store.skip(["secret"], Reason.HOLDS_SECRET, now=1.0)
    last = person.turn(PRAISED, THANKS, parent="secret")
    assert {item.turn for item in store.suite()} == {first, last}


def test_what_was_praised_and_corrected_by_a_hint_is_not_kept_as_approved(store, person):
    both = Verdict(reward=1, source=Source.VOTES, hints=HINTED.hints)
    first = person.turn(both, TOOL)
    second = person.turn(PRAISED, TOOL, parent=first)
    person.turn(both, THANKS, parent=second)
    assert [item.turn for item in store.suite()] == [second]
    assert [each.bad for each in store.episodes()] == [None]


def test_many_bad_requests_after_learning_are_an_alarm_once(store, person):
    store.commit_version(a_version(0, parent=None), now=1.0)
    person.well(5)
    store.commit_version(a_version(1), now=1.0)
    person.badly(4)
    (alarm,) = store.events()
    assert (alarm.kind, alarm.version) == (EventKind.ALARM, 1)
    assert "the original model" in alarm.words
    assert "in a complaint" in alarm.words
    assert store.episodes() == []


def test_complaints_about_a_model_that_learned_nothing_is_no_alarm(store, person):
    person.badly(10)
    assert store.events() == []
    store.commit_version(a_version(0, parent=None), now=1.0)
    person.badly(1)
    assert store.events() == []


def test_complaints_without_hints_that_were_not_asked_for_are_no_alarm_unless_they_grow(store, person):
    learn(store, 0, 1)
    person.well(1)
    person.turn(COMPLAINT, NO, version=0)
    for _ in range(20):
        person.turn(COMPLAINT, NO, version=1)
    assert store.events() == []
    person.well(24, version=1)
    assert set(kinds(store)) == {EventKind.CONFIRM}
    learn(store, 2)
    for _ in range(8):
        person.turn(COMPLAINT, NO, version=2)
    assert kinds(store)[-1] is EventKind.ALARM


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


def test_a_request_with_several_choices_ends_once_and_as_well_as_the_best_of_them(store, person):
    learn(store, 0, 1)
    for number in range(6):
        asked = {"session": f"s{number}", "created": float(number), "prompt_hash": f"p{number}".encode()}
        for verdict, said in ((PANNED, NO), (PRAISED, THANKS), (PANNED, NO), (PANNED, NO)):
            person.turn(verdict, said, version=1, **asked)
    assert [each.bad for each in store.episodes()] == [None] * 6
    assert kinds(store) == [EventKind.CONFIRM]
    for _ in range(2):
        person.turn(PANNED, NO, version=1, session="bad", prompt_hash=b"bad")
    assert [each.bad for each in store.episodes()][6:] == [BadEnd.DISPLEASED]


def test_choices_that_the_agent_did_not_go_on_with_are_no_agent_that_never_came_back(store, person):
    for number, session in enumerate(["went on", "stuck"]):
        for choice in range(3):
            of = {"session": session, "prompt_hash": session.encode(), "created": float(number)}
            add(store, f"{session}{choice}", finish=Finish.TOOL_CALLS, now=0.0, **of)
    store.answer("went on1", TOOL, answered_by=None, now=1.0)
    assert person.watch.sweep(store, now=1e9) == 1
    assert [each.turn for each in store.all_episodes()] == ["stuck0"]


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
