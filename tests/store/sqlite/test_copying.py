"""A copy of a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterwit.core.errors import StoreError
from afterwit.store import Store
from afterwit.store.sqlite import SqliteStore
from tests.store.databases import MODEL
from tests.store.examples import add_judged


def test_a_copy_holds_what_is_stored_and_nothing_later(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    add_judged(store, "one")
    store.copy_to(path)
    add_judged(store, "two")
    copy = SqliteStore.open(path, fingerprint=MODEL)
    assert list(copy.turns()) == [store.turn("one")]
    copy.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in tmp_path.glob("copy*")] == ["copy"], "one file, without a log beside it"


def test_a_copy_over_something_else_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "copy").write_bytes(b"not a store" * 1000)
    with pytest.raises(StoreError):
        store.copy_to(tmp_path / "copy")
