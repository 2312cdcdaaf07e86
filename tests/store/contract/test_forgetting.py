"""Forgetting a session: the order, and what is deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from afterwit.errors import TurnNotFound
from afterwit.lifecycle import Reason, State
from afterwit.promotion.episodes import Episode
from afterwit.promotion.suite import SuiteItem
from afterwit.store import Filter, Store
from afterwit.verdict import Feedback
from afterwit.version import Effect
from tests.store.examples import NO, a_version, add, add_judged


def test_everything_that_was_said_in_a_session_is_deleted(store: Store) -> None:
    add_judged(store, "a", session="talk")
    add(store, "open", session="talk", parent="a")
    add(store, "ended", session="talk", reason=Reason.PENALTIES)
    add(store, "other", session="else", parent="open")
    effect = Effect(turn="a", before=-1.0, after=-2.0, advantages=(0.5, -0.25))
    store.commit_version(replace(a_version(1, ["a"]), effects=(effect,)), now=1.0)
    assert [each.effect for each in store.learned(version=1)] == [effect]
    item = SuiteItem(
        turn="a", stratum="text", source="s", version=0, since=1.0, prompt_ids=(1,), ids=(2,), sure=(True,)
    )
    ended = Episode(
        turn="a",
        session="talk",
        source="s",
        version=0,
        bad=None,
        complaint=True,
        kind="text",
        approved=("a",),
    )
    store.end_episode(ended, [item], steps=["a"], now=1.0)
    store.order_forgetting("talk", replay=True, now=1.0)
    assert store.turn_ids("talk") == ("a", "open", "ended")
    assert store.forget("talk", now=2.0) == 3
    for turn in ("a", "open", "ended"):
        with pytest.raises(TurnNotFound):
            store.turn(turn)
    assert store.counts().reasons == {Reason.FORGOTTEN: 3}
    assert (store.suite(), store.all_episodes(), store.forget_orders()) == ([], [], [])
    assert [each.effect for each in store.learned(version=1)] == [None]
    assert store.turn("other").turn.id == "other"
    assert list(store.turns(Filter(session="talk"))) == []
    assert store.forget("talk", now=3.0) == 0
    assert store.requeue(now=4.0) == 0


def test_what_comes_later_about_a_forgotten_turn_is_not_kept(store: Store) -> None:
    add_judged(store, "a", session="talk")
    store.commit_version(a_version(1, ["a"]), now=1.0)
    store.forget("talk", now=2.0)
    assert store.answer("a", NO, answered_by="b", now=3.0) is State.SKIPPED
    with pytest.raises(TurnNotFound):
        store.feedback("a", Feedback(text="No, the other file."), now=3.0)
    add(store, "b", session="talk", now=3.0)
    assert store.candidates("key/agent", [], ["a"])[0].answered is False
    assert store.forget("talk", now=4.0) == 1


def test_a_version_that_forgets_a_session_deletes_it(store: Store) -> None:
    add_judged(store, "a", session="talk")
    add_judged(store, "b", session="else")
    store.commit_version(a_version(1, ["a", "b"]), now=1.0)
    store.commit_version(replace(a_version(2), forgets=("talk",), without=("a",)), now=2.0)
    assert store.counts().reasons == {Reason.FORGOTTEN: 1}
    assert store.turn("b").trained_in == (1,)
    store.commit_version(a_version(3, ["a"]), now=3.0)
    assert store.counts().reasons == {Reason.FORGOTTEN: 1}


def test_an_order_holds_until_it_is_carried_out_taken_back_or_failed(store: Store) -> None:
    store.order_forgetting("late", replay=False, now=2.0)
    store.order_forgetting("early", replay=True, now=1.0)
    assert [(order.session, order.replay) for order in store.forget_orders()] == [
        ("early", True),
        ("late", False),
    ]
    store.forgetting_failed("late", "why")
    store.forgetting_failed("nobody", "why")
    assert [order.error for order in store.forget_orders()] == [None, "why"]
    store.order_forgetting("late", replay=True, now=3.0)
    assert [order.error for order in store.forget_orders()] == [None, None]
    store.cancel_forgetting("late")
    assert [order.session for order in store.forget_orders()] == ["early"]
