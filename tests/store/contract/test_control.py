"""Pauses, and what stages note of themselves."""

from __future__ import annotations

from afterwit.store import Pause, Store
from tests.store.databases import Database
from tests.store.examples import add_judged


def test_a_pause_holds_until_it_is_taken_back_and_keeps_its_time(store: Store) -> None:
    assert store.paused() is None
    store.pause("looking at it", now=1.0)
    assert store.pause("still looking", now=2.0) == Pause(since=1.0, words="still looking")
    assert store.paused() == Pause(since=1.0, words="still looking")
    assert store.resume() == Pause(since=1.0, words="still looking")
    assert store.resume() is None
    assert store.paused() is None


def test_a_pause_survives_a_crash(database: Database) -> None:
    store = database.open()
    store.pause("", now=1.0)
    store.close()
    database.crash()
    again = database.open()
    assert again.paused() == Pause(since=1.0, words="")
    again.close()


def test_the_newest_note_of_a_name_counts(store: Store) -> None:
    assert store.note("learn") is None
    store.set_note("learn", "one")
    store.set_note("learn", "two")
    assert (store.note("learn"), store.note("judge")) == ("two", None)


def test_turns_that_a_learner_holds_are_counted(store: Store) -> None:
    for turn in ("a", "b", "c"):
        add_judged(store, turn)
    assert store.in_update(now=1.0) == 0
    store.claim("learn", owner="learner", limit=2, lease_s=10.0, now=1.0)
    assert store.in_update(now=2.0) == 2
    assert store.in_update(now=12.0) == 0
