"""Claims, leases, back-off and verdicts."""

from __future__ import annotations

from functools import partial

from afterwit.lifecycle import Reason, State
from afterwit.store import Store
from afterwit.verdict import Feedback
from tests.store.examples import HINTED, NO, PRAISED, add, add_judged


def answered(store: Store, *names: str) -> None:
    for name in names:
        add(store, name)
        store.answer(name, NO, answered_by=None, now=0.0)


def claimed(store: Store, *, owner: str = "one", limit: int = 10, now: float = 0.0) -> list[str]:
    return [r.turn.id for r in store.claim("judge", owner=owner, limit=limit, lease_s=10.0, now=now)]


def test_a_claim_takes_the_oldest_and_nobody_else_gets_them(store: Store) -> None:
    answered(store, "a", "b", "c")
    assert claimed(store, limit=2) == ["a", "b"]
    assert claimed(store, owner="two") == ["c"]
    assert claimed(store, owner="two") == []


def test_a_claim_of_taught_turns_takes_those_with_a_hint_or_a_better_answer(store: Store) -> None:
    answered(store, "a", "b", "c", "d")
    given = {"b": Feedback(reward=-1, text="Too long."), "c": Feedback(hint="Be brief, please.")}
    for name, feedback in (given | {"d": Feedback(reward=-1, correction="b.txt")}).items():
        store.feedback(name, feedback, now=0.0)
    claim = partial(store.claim, "judge", limit=1, lease_s=10.0, taught=True)
    assert [[r.turn.id for r in claim(owner=owner, now=0.0)] for owner in "xyz"] == [["c"], ["d"], []]
    assert [r.turn.id for r in claim(owner="z", now=10.0)] == ["c"]
    assert claimed(store) == ["a", "b"]


def test_a_claim_may_be_of_hundreds_of_turns(store: Store) -> None:
    names = [f"turn {number}" for number in range(600)]
    with store.transaction():
        answered(store, *names)
    assert claimed(store, limit=600) == names


def test_the_judge_does_not_get_open_or_judged_turns(store: Store) -> None:
    add(store, "open")
    add_judged(store, "judged")
    assert claimed(store) == []


def test_an_expired_lease_is_claimed_by_another(store: Store) -> None:
    answered(store, "a")
    claimed(store)
    assert claimed(store, owner="two", now=9.9) == []
    assert claimed(store, owner="two", now=10.0) == ["a"]
    assert not store.judged("a", HINTED, rl=True, opd=True, reason=None, owner="one", now=11.0)


def test_an_extended_lease_holds_and_names_the_turns_that_are_still_held(store: Store) -> None:
    answered(store, "a", "b")
    claimed(store)
    store.release(["b"], owner="one", now=1.0)
    assert store.extend(["a", "b", "ghost"], owner="one", lease_s=50.0, now=5.0) == ("a",)
    assert claimed(store, owner="two", now=54.0) == ["b"]
    assert claimed(store, owner="two", now=55.0) == ["a"]


def test_a_released_turn_backs_off_and_its_failures_are_counted(store: Store) -> None:
    answered(store, "a")
    claimed(store)
    store.release(["a"], owner="one", now=1.0, retry_in_s=30.0, error="the judge does not answer")
    record = store.turn("a")
    assert (record.attempts, record.error, record.owner) == (1, "the judge does not answer", None)
    assert claimed(store, now=30.0) == []
    assert claimed(store, now=31.0) == ["a"]


def test_giving_a_turn_back_without_an_error_is_not_a_failure(store: Store) -> None:
    answered(store, "a")
    claimed(store)
    store.release(["a"], owner="one", now=1.0)
    assert store.turn("a").attempts == 0
    assert claimed(store, now=1.0) == ["a"]


def test_releasing_what_another_holds_changes_nothing(store: Store) -> None:
    answered(store, "a")
    claimed(store)
    store.release(["a"], owner="two", now=1.0)
    assert claimed(store, owner="two", now=1.0) == []


def test_a_verdict_is_stored_with_the_judges_words(store: Store) -> None:
    answered(store, "a")
    claimed(store)
    assert store.judged("a", HINTED, rl=True, opd=True, reason=None, owner="one", now=2.0)
    record = store.turn("a")
    assert record.state is State.JUDGED
    assert record.verdict == HINTED
    assert (record.rl, record.opd) == (True, True)
    assert [turn.since for turn in store.waiting(now=3.0)] == [2.0]


def test_a_verdict_without_a_term_ends_the_turn_with_its_reason(store: Store) -> None:
    answered(store, "a")
    claimed(store)
    store.judged("a", PRAISED, rl=False, opd=False, reason=Reason.NO_SIGNAL, owner="one", now=2.0)
    record = store.turn("a")
    assert (record.state, record.reason, record.verdict) == (State.SKIPPED, Reason.NO_SIGNAL, PRAISED)


def test_committing_a_verdict_twice_changes_nothing(store: Store) -> None:
    answered(store, "a")
    claimed(store)
    for _ in range(2):
        assert store.judged("a", HINTED, rl=True, opd=True, reason=None, owner="one", now=2.0)
    assert store.turn("a").verdict == HINTED


def test_a_verdict_judged_anew_replaces_the_first(store: Store) -> None:
    add_judged(store, "a")
    store.answer("a", NO + NO, answered_by=None, now=1.0)
    claimed(store, now=1.0)
    store.judged("a", PRAISED, rl=True, opd=False, reason=None, owner="one", now=2.0)
    record = store.turn("a")
    assert (record.verdict, record.opd) == (PRAISED, False)


def test_a_claim_of_named_turns_takes_those_that_still_wait(store: Store) -> None:
    for name in "abcd":
        add_judged(store, name)
    a, b, c, _ = (turn.seq for turn in store.waiting(now=1.0))
    store.claim("learn", owner="another", limit=1, lease_s=10.0, now=1.0)
    store.answer("b", NO + NO, answered_by=None, now=1.0)
    taken = store.claim("learn", owner="learner", limit=3, lease_s=10.0, now=1.0, only=(c, b, a))
    assert [record.turn.id for record in taken] == ["c"]
    assert [turn.seq for turn in store.waiting(now=1.0)] == [c + 1]


def test_a_named_turn_whose_next_state_changed_is_judged_again_instead(store: Store) -> None:
    add_judged(store, "a")
    store.claim("learn", owner="dead", limit=1, lease_s=10.0, now=0.0)
    store.answer("a", NO + NO, answered_by=None, now=1.0)
    (waits,) = store.waiting(now=10.0)
    assert store.claim("learn", owner="next", limit=1, lease_s=10.0, now=10.0, only=(waits.seq,)) == []
    assert store.turn("a").state is State.ANSWERED


def test_skipping_ends_waiting_turns_and_no_others(store: Store) -> None:
    answered(store, "a", "b")
    claimed(store, limit=1)
    assert store.skip(["a", "b"], Reason.JUDGE_FAILED, owner="one", now=1.0, error="bad answer") == 1
    assert (store.turn("a").reason, store.turn("a").error) == (Reason.JUDGE_FAILED, "bad answer")
    assert store.skip(["a"], Reason.STALE, now=2.0) == 0
    assert store.turn("a").reason is Reason.JUDGE_FAILED
