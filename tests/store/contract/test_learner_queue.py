"""Turns that wait for the learner, and when more of their session may come."""

from __future__ import annotations

import pytest

from afterwit.lifecycle import Reason
from afterwit.store import Store
from afterwit.turn import Kind, Sampled
from tests.store.examples import HINTED, NO, THANKS, add, add_judged


def judge(store: Store, *names: str, now: float = 0.0) -> None:
    """Bring answered turns to the learner."""
    claimed = store.claim("judge", owner="judge", limit=100, lease_s=60, now=now)
    for record in claimed:
        if record.turn.id in names:
            store.judged(record.turn.id, HINTED, rl=True, opd=True, reason=None, owner="judge", now=now)
    store.release([record.turn.id for record in claimed], owner="judge", now=now)


def talk(store: Store, *turns: str) -> None:
    """A session in which each turn answers the one before, which the judge has seen."""
    for before, turn in zip((None, *turns), turns, strict=False):
        if before is not None:
            store.answer(before, NO, answered_by=turn, now=0.0)
        add(store, turn, parent=before)
    judge(store, *turns)


def ended(store: Store) -> set[bool]:
    return {turn.ended for turn in store.waiting(now=1e9)}


def test_what_waits_is_judged_unclaimed_and_not_backing_off(store: Store) -> None:
    for name in "abc":
        add_judged(store, name, now=float(ord(name)))
    store.claim("learn", owner="learner", limit=2, lease_s=10.0, now=100.0)
    assert [turn.since for turn in store.waiting(now=100.0)] == [float(ord("c"))]
    store.release(["a"], owner="learner", now=101.0, retry_in_s=60.0, error="out of memory")
    assert (len(store.waiting(now=102.0)), store.tried_later(now=102.0)) == (1, 1)
    assert store.tried_later(now=161.0) == 0
    assert [turn.since for turn in store.waiting(now=161.0)] == [97.0, 98.0, 99.0]


def test_a_waiting_turn_knows_its_session_and_the_version_of_its_oldest_token(store: Store) -> None:
    sampled = Sampled(ids=(4, 5), logprobs=(-0.5, -0.25), versions=(7, 6), forced=(False, False))
    add_judged(store, "a", sampled=sampled, session="one")
    add_judged(store, "b", session="two")
    assert [(turn.session, turn.oldest_version) for turn in store.waiting(now=1.0)] == [
        ("one", 6),
        ("two", 0),
    ]


def test_a_session_goes_on_while_its_newest_turn_waits_for_an_answer(store: Store) -> None:
    talk(store, "a", "b", "c")
    assert len(store.waiting(now=1.0)) == 2
    assert ended(store) == {False}


def test_a_session_goes_on_while_the_answer_to_its_newest_turn_is_being_sampled(store: Store) -> None:
    talk(store, "a", "b")
    store.answer("b", NO, answered_by="on its way", now=1.0)
    judge(store, "b", now=1.0)
    assert ended(store) == {False}
    add(store, "on its way", parent="b", reason=Reason.CLIENT_LEFT)
    assert ended(store) == {True}


def test_a_session_has_ended_when_its_client_says_so_or_nobody_answers(store: Store) -> None:
    talk(store, "a", "b", "c")
    store.end_session("session", now=1.0)
    assert ended(store) == {True}
    store.answer("c", NO, answered_by="d", now=2.0)
    assert ended(store) == {False}


def test_a_session_that_ends_with_feedback_has_ended_once_that_is_judged(store: Store) -> None:
    talk(store, "a", "b")
    store.answer("b", THANKS, answered_by=None, now=1.0)
    assert ended(store) == {False}
    judge(store, "b", now=1.0)
    assert ended(store) == {True}


def test_an_ended_session_waits_for_what_the_judge_still_has(store: Store) -> None:
    talk(store, "a", "b")
    store.answer("b", NO, answered_by="c", now=1.0)
    add(store, "c", parent="b", reason=Reason.NO_NEXT_STATE)
    assert ended(store) == {False}
    judge(store, "b", now=1.0)
    assert ended(store) == {True}


@pytest.mark.parametrize("kind", [Kind.SIDE, Kind.UNKNOWN])
def test_what_is_beside_the_conversation_does_not_end_it(store: Store, kind: Kind) -> None:
    talk(store, "a", "b")
    add(store, "title", kind=kind, reason=Reason.SIDE_TURN)
    assert ended(store) == {False}


def test_the_end_of_one_session_is_not_anothers(store: Store) -> None:
    talk(store, "a", "b")
    add_judged(store, "alone", session="another")
    store.end_session("session", now=1.0)
    store.answer("alone", THANKS, answered_by="next", now=1.0)
    judge(store, "alone", now=1.0)
    assert {(turn.session, turn.ended) for turn in store.waiting(now=2.0)} == {
        ("session", True),
        ("another", False),
    }
