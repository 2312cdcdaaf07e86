"""Copies of a store: to a file, and into another store of any kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from afterwit.errors import StoreError, StoreMismatch
from afterwit.lifecycle import Reason
from afterwit.promotion.episodes import Event, EventKind
from afterwit.store import Store
from afterwit.store.sqlite import SURVIVES_A_KILL, SqliteDatabase, SqliteStore, connect
from afterwit.turn import Conversation, Kind, Message
from afterwit.verdict import Feedback
from afterwit.version import Effect, Origin
from tests.store.contract.test_imported import TURN as IMPORTED
from tests.store.contract.test_promotion import end, item
from tests.store.databases import DATABASES, KINDS
from tests.store.examples import NO, PRAISED, a_version, add, add_judged
from tests.store.places import MODEL

WORDS = "The test fails because the fixture is opened twice. " * 40


@pytest.fixture
def another(tmp_path: Path) -> Iterator[Callable[[str], Store]]:
    """Opens an empty store of a kind."""
    with ExitStack() as stack:
        yield lambda kind: stack.enter_context(closing(DATABASES[kind](tmp_path / "another").open()))


def live(store: Store) -> None:
    """Something in every table."""
    store.commit_version(a_version(0, parent=None, origin=Origin.BASE), now=0.0)
    said = (Message(role="user", content=WORDS),)
    add_judged(store, "a", conversation=Conversation(messages=said))
    grown = Conversation(messages=(*said, Message(role="user", content="And now?")))
    add_judged(store, "b", PRAISED, conversation=grown, parent="a")
    add(store, "c", kind=Kind.SIDE, reason=Reason.SIDE_TURN)
    hashes = {"prompt_hash": b"prompt", "full_hash": b"full", "depth": 1, "full_depth": 2}
    store.add_turn(IMPORTED, **hashes, delivered=True, reason=None, now=5.0)
    store.feedback("a", Feedback(reward=-1, text="no"), now=1.0)
    effect = Effect(turn="b", before=-1.5, after=-1.25, advantages=(0.5, -0.25))
    store.commit_version(a_version(1, ["b"], effects=(effect,)), now=2.0)
    store.published(1, now=3.0)
    end(store, "b", items=[item("b", 1.0)])
    store.decided(Event(kind=EventKind.CONFIRM, at=4.0, version=1, evidence=0.5, words="well"))
    store.set_status("judge", False, "down", now=4.0)
    store.add_key("laptop", {"chat"}, "hash", now=4.0)
    store.exclude("elsewhere", now=4.0)
    store.pause("looking", now=5.0)


def everything(store: Store) -> dict[str, Any]:
    return {
        "turns": list(store.turns()),
        "versions": store.versions(),
        "learned": store.learned(),
        "episodes": store.all_episodes(),
        "suite": store.suite(),
        "events": store.events(),
        "statuses": store.statuses(),
        "keys": store.keys(),
        "excluded": store.excluded(),
        "paused": store.paused(),
        "counts": store.counts(),
        "candidates": store.candidates("key/agent", [b"prompt a", b"full a"], ["b"]),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_was_copied_into_another_goes_on_there(
    store: Store, another: Callable[[str], Store], kind: str
) -> None:
    live(store)
    copy = another(kind)
    assert store.copy_into(copy) == 4
    held = everything(store)
    assert held == everything(copy)
    assert all(held.values())
    later = add(copy, "d", parent="b", now=9.0)
    copy.feedback("d", Feedback(reward=1), now=9.0)
    newest = list(copy.turns())[-1]
    assert (newest.turn, newest.seq) == (later, held["turns"][-1].seq + 1)
    copy.decided(Event(kind=EventKind.ALARM, at=9.0, version=1, evidence=9.0, words="bad"))
    assert [event.words for event in copy.events()] == ["well", "bad"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_store_can_be_copied(store: Store, another: Callable[[str], Store], kind: str) -> None:
    copy = another(kind)
    assert store.copy_into(copy) == 0
    assert add(copy, "a") == copy.turn("a").turn


def test_a_store_that_holds_anything_takes_no_copy(store: Store, another: Callable[[str], Store]) -> None:
    add(store, "a")
    full = another("sqlite")
    full.set_status("judge", True, "", now=0.0)
    with pytest.raises(StoreError, match="is not empty: its statuses"):
        store.copy_into(full)
    assert list(full.turns()) == []


def test_a_store_of_another_model_takes_no_copy(store: Store, tmp_path: Path) -> None:
    add(store, "a")
    store.bind(MODEL)
    with closing(SqliteStore.open(tmp_path / "other.db", fingerprint="other")) as other:
        other.bind("other")
        with pytest.raises(StoreMismatch, match="belongs to another model"):
            store.copy_into(other)
        assert list(other.turns()) == []


class Forgetful(SqliteDatabase):
    def insert_many(self, *_: object) -> None:
        """As if the rows were written."""


def test_a_copy_that_misses_rows_is_given_up(store: Store, tmp_path: Path) -> None:
    live(store)
    path = tmp_path / "forgetful.db"
    SqliteStore.open(path, fingerprint=MODEL).close()
    with closing(SqliteStore(Forgetful(connect(path, SURVIVES_A_KILL), path))) as copy:
        with pytest.raises(StoreError, match="got 0 rows of turns"):
            store.copy_into(copy)


def test_a_copy_holds_what_is_stored_and_nothing_later(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    add_judged(store, "one")
    store.copy_to(path)
    add_judged(store, "two")
    with closing(SqliteStore.open(path, fingerprint=MODEL)) as copy:
        assert list(copy.turns()) == [store.turn("one")]
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.glob("copy*")] == ["copy"], "one file, without a log beside it"


def test_a_copy_over_something_else_is_refused(store: Store, tmp_path: Path) -> None:
    store.answer(add(store, "a").id, NO, answered_by=None, now=0.0)
    (tmp_path / "copy").write_bytes(b"not a store" * 1000)
    with pytest.raises(StoreError):
        store.copy_to(tmp_path / "copy")
