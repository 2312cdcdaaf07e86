"""The votes of each source on a kind of call."""

from __future__ import annotations

from afterwit.store import Store
from afterwit.verdict import Flag, Verdict
from afterwit.vetting.doubts import Votes
from tests.store.examples import HINTED, NO, PRAISED, a_version, add


def judge(
    store: Store, turn: str, scope: str, verdict: Verdict, *flags: Flag, previous: str | None = None
) -> None:
    add(store, turn, scope=scope, session=turn)
    store.answer(turn, NO, answered_by=None, now=0.0)
    store.claim("judge", owner="judge", limit=9, lease_s=60, now=0.0)
    store.judged(
        turn,
        verdict,
        rl=True,
        opd=False,
        reason=None,
        owner="judge",
        now=0.0,
        flags=flags,
        signature="delete path",
        previous=previous,
    )


def test_votes_on_a_kind_of_call_are_counted_by_source(store: Store) -> None:
    for turn, scope, verdict in [("a", "ann", PRAISED), ("b", "ann", HINTED), ("c", "bob", PRAISED)]:
        judge(store, turn, scope, verdict)
    expected = {"ann": Votes(approved=1, rejected=1), "bob": Votes(approved=1)}
    assert store.votes_on("delete path") == expected
    assert store.votes_on("write path") == {}
    store.review(["b"], accept=False, now=1.0)
    store.exclude("c", now=1.0)
    assert store.votes_on("delete path") == {"ann": Votes(approved=1)}


def test_votes_on_a_call_are_told_apart_by_the_call_before_it(store: Store) -> None:
    judge(store, "a", "ann", PRAISED, previous="list")
    judge(store, "b", "bob", HINTED, previous="")
    judge(store, "c", "cleo", HINTED)
    assert store.votes_on("delete path", after="list") == {"ann": Votes(approved=1)}
    assert store.votes_on("delete path", after="") == {"bob": Votes(rejected=1)}
    assert store.votes_on("delete path").keys() == {"ann", "bob", "cleo"}


def test_a_contradiction_counts_against_its_source_until_a_person_accepts_it(store: Store) -> None:
    judge(store, "a", "eve", HINTED, Flag.CONTRADICTS)
    judge(store, "b", "eve", PRAISED, Flag.CONTRADICTS)
    judge(store, "c", "eve", HINTED, Flag.LINK)
    assert (store.contradictions("eve"), store.contradictions("ann")) == (1, 0)
    assert store.votes_on("delete path") == {"eve": Votes(rejected=1)}
    store.review(["a"], accept=True, now=1.0)
    assert store.contradictions("eve") == 0
    assert store.votes_on("delete path") == {"eve": Votes(rejected=2)}


def test_turns_that_trained_lately_are_counted_by_source(store: Store) -> None:
    for turn, scope in [("a", "ann"), ("b", "eve"), ("c", "eve")]:
        judge(store, turn, scope, PRAISED)
    store.commit_version(a_version(1, ["a"], created=10.0), now=10.0)
    store.commit_version(a_version(2, ["b", "c"], replayed=("a",), created=20.0), now=20.0)
    assert store.trained_since(5.0) == {"ann": 1, "eve": 2}
    assert store.trained_since(15.0) == {"eve": 2}


def test_what_clients_call_themselves_makes_no_source(store: Store) -> None:
    """One key, under names that its programs invent, with a group of sessions or without."""
    for turn, scope in [("a", "eve/one"), ("b", "eve/two"), ("c", "eve/two#group"), ("d", "team/eve/x")]:
        judge(store, turn, scope, HINTED, Flag.CONTRADICTS)
    assert {turn.source for turn in store.waiting(now=1.0)} == {"eve", "team/eve"}
    assert (store.contradictions("eve"), store.contradictions("team/eve")) == (3, 1)
    store.review(["a", "b", "c"], accept=True, now=1.0)
    assert store.votes_on("delete path") == {"eve": Votes(rejected=3)}
    store.commit_version(a_version(1, ["a", "b", "c", "d"], created=10.0), now=10.0)
    assert store.trained_since(5.0) == {"eve": 3, "team/eve": 1}
