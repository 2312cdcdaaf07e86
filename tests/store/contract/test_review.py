"""Reviews of verdicts by a person, and sessions that never train."""

from __future__ import annotations

import pytest

from afterwit.errors import TurnNotFound
from afterwit.lifecycle import Reason, State
from afterwit.store import Excluded, Filter, ReviewOutcome, Store
from afterwit.verdict import Flag
from afterwit.version import Origin
from tests.store.examples import HINTED, NO, PRAISED, THANKS, a_version, add, add_judged


def judge(store: Store, turn: str, *flags: Flag) -> None:
    store.claim("judge", owner="judge", limit=9, lease_s=60, now=0.0)
    store.judged(turn, HINTED, rl=True, opd=True, reason=None, owner="judge", now=0.0, flags=flags)


def ends(store: Store, session: str | None = None) -> dict[str, State | Reason]:
    found = store.turns(Filter(session=session))
    return {record.turn.id: record.reason or record.state for record in found}


def test_flags_come_with_the_verdict_and_a_review_belongs_to_it(store: Store) -> None:
    add(store, "a")
    store.answer("a", NO, answered_by=None, now=0.0)
    judge(store, "a", Flag.LINK)
    (waiting,) = store.waiting(now=1.0)
    assert (waiting.flags, waiting.accepted, waiting.rewarded) == ((Flag.LINK,), False, True)
    assert waiting.source == "key"
    assert store.review(["a"], accept=True, now=1.0) == {"a": ReviewOutcome.ACCEPTED}
    assert store.waiting(now=1.0)[0].accepted
    assert (store.turn("a").flags, store.turn("a").accepted) == ((Flag.LINK,), True)
    store.answer("a", THANKS, answered_by=None, now=2.0)
    judge(store, "a")
    assert (store.turn("a").flags, store.turn("a").accepted) == ((), None)


def test_a_refused_turn_ends_and_may_be_accepted_later(store: Store) -> None:
    add_judged(store, "a")
    assert store.review(["a"], accept=False, now=1.0) == {"a": ReviewOutcome.REFUSED}
    assert ends(store) == {"a": Reason.REVIEW_REFUSED}
    assert store.review(["a"], accept=False, now=1.0) == {"a": ReviewOutcome.REFUSED}
    assert store.requeue(["a"], now=1.0) == 0
    assert store.review(["a"], accept=True, now=2.0) == {"a": ReviewOutcome.ACCEPTED}
    assert ends(store) == {"a": State.JUDGED}


def test_what_trains_or_trained_is_not_changed_by_a_review(store: Store) -> None:
    for turn in ("a", "b"):
        add_judged(store, turn)
    add(store, "c")
    store.commit_version(a_version(1, ["a"]), now=1.0)
    store.claim("learn", owner="learner", limit=1, lease_s=10.0, now=1.0)
    before = ends(store)
    assert store.review(["a", "b", "c"], accept=False, now=2.0) == {
        "a": ReviewOutcome.TRAINED,
        "b": ReviewOutcome.IN_UPDATE,
        "c": ReviewOutcome.NOT_WAITING,
    }
    assert ends(store) == before
    assert store.turn("b").accepted is None
    with pytest.raises(TurnNotFound):
        store.review(["nobody"], accept=True, now=2.0)


def test_an_excluded_session_ends_and_what_comes_ends_at_once(store: Store) -> None:
    add(store, "open")
    add(store, "failed", reason=Reason.NO_SIGNAL)
    add_judged(store, "judged")
    add_judged(store, "trained")
    add_judged(store, "other", session="another")
    store.commit_version(a_version(3, ["trained"]), now=1.0)
    assert store.exclude("session", now=2.0) == Excluded(ended=2, trained=(3,), in_update=0)
    add(store, "new")
    assert ends(store, "session") == {
        "open": Reason.EXCLUDED,
        "failed": Reason.EXCLUDED,
        "judged": Reason.EXCLUDED,
        "trained": State.TRAINED,
        "new": Reason.EXCLUDED,
    }
    assert [turn.turn for turn in store.waiting(now=3.0)] == ["other"]
    store.answer("new", NO, answered_by=None, now=3.0)
    assert ends(store)["new"] is Reason.EXCLUDED
    assert store.requeue(["judged", "new"], now=3.0) == 0
    assert store.trained_with_hints(limit=9, min_version=0, seed=1) == []
    assert store.excluded() == {"session"}


def test_a_session_that_is_included_again_teaches_from_then_on(store: Store) -> None:
    add(store, "before")
    store.exclude("session", now=1.0)
    assert store.include("session")
    assert not store.include("session")
    add(store, "after")
    assert ends(store) == {"before": Reason.EXCLUDED, "after": State.OPEN}


def test_turns_that_an_update_held_when_their_session_was_excluded_end_when_they_come_back(
    store: Store,
) -> None:
    add_judged(store, "a")
    store.claim("learn", owner="learner", limit=1, lease_s=10.0, now=1.0)
    assert store.exclude("session", now=2.0) == Excluded(ended=0, trained=(), in_update=1)
    store.release(["a"], owner="learner", now=3.0)
    assert ends(store) == {"a": Reason.EXCLUDED}


def test_turns_of_a_lost_version_or_a_rollback_do_not_come_back_to_an_excluded_session(store: Store) -> None:
    for turn, version in (("a", 1), ("b", 2)):
        add_judged(store, turn, PRAISED)
        store.commit_version(a_version(version, [turn]), now=1.0)
    store.exclude("session", now=2.0)
    store.reconcile([a_version(1, ["a"])], now=3.0)
    assert ends(store) == {"a": State.TRAINED, "b": Reason.EXCLUDED}
    store.commit_version(a_version(2, origin=Origin.ROLLBACK, reverts=(1,), restores=0), now=4.0)
    assert ends(store)["a"] is Reason.REVERTED
    assert store.requeue(["a"], now=5.0) == 0
