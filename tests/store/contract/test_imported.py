"""Turns that were recorded elsewhere: kept, judged, and never on their way to the learner."""

from __future__ import annotations

import pytest

from afterwit.errors import StoreError
from afterwit.lifecycle import Reason, State
from afterwit.store import Store
from afterwit.turn import Conversation, Finish, Kind, Message, RecordedTurn
from tests.store.databases import Database
from tests.store.examples import HINTED, NO

TURN = RecordedTurn(
    id="imported",
    scope="imported",
    session="imported",
    parent=None,
    kind=Kind.MAIN,
    created=5.0,
    model="theirs",
    conversation=Conversation(messages=(Message(role="user", content="Open it."),)),
    message=Message(role="assistant", content="Done."),
    finish=Finish.STOP,
)


def add(store: Store, *, answered: bool = True) -> None:
    hashes = {"prompt_hash": b"prompt", "full_hash": b"full", "depth": 1, "full_depth": 2}
    store.add_turn(TURN, **hashes, delivered=True, reason=None, now=5.0)
    if answered:
        store.answer(TURN.id, NO, answered_by=None, now=5.0)
        store.claim("judge", owner="judge", limit=1, lease_s=60, now=5.0)


def judged(store: Store, reason: Reason | None) -> bool:
    return store.judged(TURN.id, HINTED, rl=False, opd=False, reason=reason, owner="judge", now=6.0)


def test_an_imported_turn_comes_back_as_it_was_stored(database: Database) -> None:
    store = database.open()
    add(store, answered=False)
    store.close()
    again = database.open()
    record = again.turn(TURN.id)
    assert (record.turn, record.state) == (TURN, State.OPEN)
    with pytest.raises(ValueError, match="not sampled here"):
        _ = record.sampled_turn
    again.close()


def test_its_verdict_is_kept_and_it_ends(store: Store) -> None:
    add(store)
    assert judged(store, Reason.NOT_SAMPLED_HERE)
    record = store.turn(TURN.id)
    assert (record.state, record.reason) == (State.SKIPPED, Reason.NOT_SAMPLED_HERE)
    assert record.verdict == HINTED


def test_no_verdict_moves_it_to_the_learner(store: Store) -> None:
    add(store)
    with pytest.raises(StoreError, match="not sampled here"):
        judged(store, None)
    assert store.turn(TURN.id).state is State.ANSWERED
    assert store.turn(TURN.id).verdict is None


@pytest.mark.parametrize("reason", [Reason.NOT_SAMPLED_HERE, Reason.JUDGE_FAILED])
def test_requeueing_it_never_leads_to_the_learner(store: Store, reason: Reason) -> None:
    add(store)
    judged(store, reason)
    store.requeue([TURN.id], now=7.0)
    assert store.turn(TURN.id).state is (State.ANSWERED if reason is Reason.JUDGE_FAILED else State.SKIPPED)
