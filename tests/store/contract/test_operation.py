"""Statuses of the stages, API keys, and values that cannot be stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from afterwit.errors import StoreError
from afterwit.store import Key, Status, Store


def test_the_newest_status_of_each_stage_is_kept(store: Store) -> None:
    store.set_status("judge", False, "it does not answer", now=1.0)
    store.set_status("learn", True, "waiting for 3 more", now=1.0)
    store.set_status("judge", True, "judging", now=2.0)
    assert [replace(status, machine="") for status in store.statuses()] == [
        Status(stage="judge", ok=True, message="judging", at=2.0),
        Status(stage="learn", ok=True, message="waiting for 3 more", at=1.0),
    ]


def test_a_revoked_key_stays_in_the_list_with_the_time_it_was_first_revoked(store: Store) -> None:
    store.add_key("laptop", {"chat", "teach"}, "hash1", now=1.0)
    key = Key(name="laptop", scopes=frozenset({"chat", "teach"}), hash="hash1", created=1.0)
    assert store.keys() == [key]
    store.revoke_key("laptop", now=2.0)
    store.revoke_key("laptop", now=3.0)
    assert store.keys() == [replace(key, revoked=2.0)]


def test_the_name_of_a_revoked_key_may_be_used_again_but_not_its_hash(store: Store) -> None:
    store.add_key("laptop", {"chat"}, "hash1", now=1.0)
    store.revoke_key("laptop", now=2.0)
    with pytest.raises(StoreError):
        store.add_key("laptop", {"chat"}, "hash1", now=3.0)
    store.add_key("laptop", {"chat"}, "hash2", now=3.0)
    assert store.keys() == [Key(name="laptop", scopes=frozenset({"chat"}), hash="hash2", created=3.0)]


def test_a_keys_name_is_taken_once_and_an_unknown_one_is_named(store: Store) -> None:
    store.add_key("laptop", {"chat"}, "hash1", now=1.0)
    with pytest.raises(StoreError, match="there is a key 'laptop' already"):
        store.add_key("laptop", {"chat"}, "hash2", now=1.0)
    with pytest.raises(StoreError, match="there is no key 'phone'"):
        store.revoke_key("phone", now=2.0)


@pytest.mark.parametrize(
    "refused",
    [
        lambda store: store.lesson(2**63),
        lambda store: store.turn("half \ud800"),
        lambda store: store.set_status("judge", False, "half \ud800", now=0.0),
    ],
)
def test_a_value_that_no_database_takes_is_refused_and_nothing_else(
    store: Store, refused: Callable[[Store], object]
) -> None:
    with store.transaction():
        store.set_status("judge", True, "", now=0.0)
        with pytest.raises(StoreError):
            refused(store)
    assert [each.ok for each in store.statuses()] == [True]
