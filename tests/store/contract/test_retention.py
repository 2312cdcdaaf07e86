"""Limits, and putting failed turns back."""

from __future__ import annotations

import pytest

from afterwit.errors import StoreError
from afterwit.lifecycle import Reason, ReasonClass, State
from afterwit.store import Counts, Store
from afterwit.turn import Conversation, Message
from afterwit.version import Origin
from tests.store.examples import NO, PRAISED, a_version, add, add_judged

LONG = Conversation(messages=(Message(role="user", content="x" * 20_000),))


def one_of_each(store: Store) -> None:
    """At time 0: a turn in every state, and a reverted one."""
    for name in ("trained", "reverted", "judged"):
        add_judged(store, name)
    add(store, "answered")
    store.answer("answered", NO, answered_by=None, now=0.0)
    add(store, "open")
    add(store, "skipped", reason=Reason.CLIENT_LEFT)
    store.commit_version(a_version(1, ["trained"]), now=0.0)
    store.commit_version(a_version(2, ["reverted"]), now=0.0)
    store.commit_version(a_version(3, origin=Origin.ROLLBACK, restores=1, reverts=(2,)), now=0.0)


def test_age_removes_what_ended_and_nothing_that_waits(store: Store) -> None:
    one_of_each(store)
    assert store.prune(now=100.0, max_age_s=50.0, max_bytes=None) == 3
    assert {record.turn.id for record in store.turns()} == {"judged", "answered", "open"}


def test_pruned_turns_still_count_for_their_version(store: Store) -> None:
    one_of_each(store)
    store.prune(now=100.0, max_age_s=50.0, max_bytes=None)
    counts = store.counts()
    assert counts.states == {
        State.OPEN: 1,
        State.ANSWERED: 1,
        State.JUDGED: 1,
        State.TRAINED: 1,
        State.SKIPPED: 1,
    }
    assert counts.reasons == {Reason.REVERTED: 1}
    assert [row.trained for row in store.versions()] == [1, 1, 0]


def test_a_removed_turn_says_so(store: Store) -> None:
    one_of_each(store)
    store.prune(now=100.0, max_age_s=50.0, max_bytes=None)
    with pytest.raises(StoreError, match="removed to keep the store within its limits"):
        store.turn("trained")
    with pytest.raises(StoreError, match="there is no turn skipped"):
        store.turn("skipped")


def test_a_removed_turn_is_never_put_back_nor_returned(store: Store) -> None:
    one_of_each(store)
    store.prune(now=100.0, max_age_s=50.0, max_bytes=None)
    assert store.requeue(["reverted"], now=101.0) == 0
    store.reconcile([], now=101.0)
    assert store.versions() == []
    assert store.counts().states[State.JUDGED] == 1
    assert {r.turn.id for r in store.claim("learn", owner="l", limit=9, lease_s=9, now=101.0)} == {"judged"}


def test_nothing_young_is_removed_for_its_age(store: Store) -> None:
    one_of_each(store)
    assert store.prune(now=40.0, max_age_s=50.0, max_bytes=None) == 0


def test_the_budget_removes_the_oldest_first_and_only_as_many_as_needed(store: Store) -> None:
    for number in range(400):
        add(store, f"t{number}", reason=Reason.SIDE_TURN, now=float(number), conversation=LONG)
    full = store.size()
    pruned = store.prune(now=1000.0, max_age_s=None, max_bytes=full // 2)
    assert store.size() <= full // 2
    left = [record.turn.id for record in store.turns()]
    assert left == [f"t{number}" for number in range(pruned, 400)]
    assert 150 < len(left) < 230


def test_waiting_turns_over_the_budget_are_kept(store: Store) -> None:
    for number in range(50):
        add(store, f"t{number}", conversation=LONG)
    assert store.prune(now=1.0, max_age_s=None, max_bytes=1000) == 0
    assert store.size() > 1000


def test_a_call_removes_no_more_than_its_limit(store: Store) -> None:
    for number in range(10):
        add(store, f"t{number}", reason=Reason.SIDE_TURN)
    assert store.prune(now=1.0, max_age_s=0.0, max_bytes=None, limit=7) == 7
    assert store.prune(now=1.0, max_age_s=0.0, max_bytes=None, limit=7) == 3


def failed(store: Store, name: str, reason: Reason, *, judged: bool) -> None:
    if judged:
        add_judged(store, name)
    else:
        add(store, name)
        store.answer(name, NO, answered_by=None, now=0.0)
    store.skip([name], reason, now=1.0)


def test_failed_turns_go_back_to_where_they_failed(store: Store) -> None:
    failed(store, "unjudged", Reason.JUDGE_FAILED, judged=False)
    failed(store, "quarantined", Reason.NOT_FINITE, judged=True)
    assert store.requeue(now=2.0) == 2
    assert store.turn("unjudged").state is State.ANSWERED
    assert store.turn("quarantined").state is State.JUDGED


def test_requeue_takes_one_reason_or_named_turns(store: Store) -> None:
    failed(store, "a", Reason.JUDGE_FAILED, judged=False)
    failed(store, "b", Reason.LEARNER_FAILED, judged=True)
    assert store.requeue(reason=Reason.LEARNER_FAILED, now=2.0) == 1
    assert store.turn("a").state is State.SKIPPED
    assert store.requeue(["a", "ghost"], now=3.0) == 1


@pytest.mark.parametrize("reason", [r for r in Reason if r.kind is not ReasonClass.FAILED])
def test_what_did_not_fail_is_not_put_back_by_itself(store: Store, reason: Reason) -> None:
    failed(store, "a", reason, judged=True)
    assert store.requeue(now=2.0) == 0
    assert store.requeue(reason=reason, now=2.0) == 0


def test_a_reverted_turn_returns_only_when_it_is_named(store: Store) -> None:
    one_of_each(store)
    assert store.requeue(now=1.0) == 0
    assert store.requeue(["reverted"], now=1.0) == 1
    assert store.turn("reverted").state is State.JUDGED


def test_a_requeued_turn_whose_next_state_changed_is_judged_again(store: Store) -> None:
    add_judged(store, "a")
    store.skip(["a"], Reason.LEARNER_FAILED, now=1.0)
    store.answer("a", NO + NO, answered_by=None, now=2.0)
    assert store.requeue(["a"], now=3.0) == 1
    assert store.turn("a").state is State.ANSWERED


def test_a_failed_turn_that_nothing_answered_stays(store: Store) -> None:
    add(store, "a", reason=Reason.JUDGE_FAILED)
    assert store.requeue(now=1.0) == 0
    assert store.counts() == Counts(states={State.SKIPPED: 1}, reasons={Reason.JUDGE_FAILED: 1})


def test_verdicts_without_a_term_do_not_count_as_judged(store: Store) -> None:
    add(store, "a")
    store.answer("a", NO, answered_by=None, now=0.0)
    store.claim("judge", owner="j", limit=1, lease_s=9, now=0.0)
    store.judged("a", PRAISED, rl=False, opd=False, reason=Reason.JUDGE_FAILED, owner="j", now=0.0)
    store.requeue(now=1.0)
    assert store.turn("a").state is State.ANSWERED
