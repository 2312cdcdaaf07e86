"""Creating, opening, refusing."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from afterwit.errors import StoreError, StoreMismatch, StoreUnavailable
from afterwit.store import Store
from afterwit.store.schema import MIGRATIONS, SCHEMA
from afterwit.store.sqlite import APPLICATION_ID, SqliteStore, open_file, schema_of
from tests.store.examples import add


def everything(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def refused(path: Path, words: str) -> None:
    before = everything(path.parent)
    with pytest.raises(StoreMismatch, match=words):
        SqliteStore.open(path, fingerprint="model")
    assert everything(path.parent) == before


def test_a_new_store_is_its_owners_alone(path: Path, store: Store) -> None:
    add(store, "a")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
    assert {file.name for file in path.parent.iterdir()} == {"store.db", "store.db-wal", "store.db-shm"}


def test_a_store_opened_again_has_its_turns(path: Path, store: Store) -> None:
    add(store, "a")
    store.close()
    again = SqliteStore.open(path, fingerprint="model")
    assert again.turn("a").turn.id == "a"
    again.close()


def test_a_store_of_another_model_is_refused_untouched(path: Path, store: Store) -> None:
    add(store, "a")
    store.bind("model")
    store.close()
    before = everything(path.parent)
    with pytest.raises(StoreMismatch, match="belongs to another model"):
        SqliteStore.open(path, fingerprint="another")
    assert everything(path.parent) == before


def test_a_store_belongs_to_the_first_model_that_it_is_bound_to(path: Path) -> None:
    for fingerprint in (None, "other"):
        SqliteStore.open(path, fingerprint=fingerprint).close()
    with closing(SqliteStore.open(path, fingerprint="second")) as late:
        with closing(SqliteStore.open(path, fingerprint="first")) as store:
            store.bind("first")
            store.bind("first")
        with pytest.raises(StoreMismatch, match="fingerprint is first, this model's second"):
            late.bind("second")
    SqliteStore.open(path, fingerprint=None).close()
    with pytest.raises(StoreMismatch):
        SqliteStore.open(path, fingerprint="second")


def test_a_newer_schema_is_refused_untouched(path: Path, store: Store) -> None:
    store.close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    connection.close()
    refused(path, f"has schema {SCHEMA + 1}; this Afterwit supports at most {SCHEMA}")


def test_a_newer_schema_still_in_the_log_is_refused(path: Path, store: Store) -> None:
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    with pytest.raises(StoreMismatch, match="newer Afterwit"):
        SqliteStore.open(path, fingerprint="model")
    other.close()


def test_another_programs_database_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    refused(path, "another program's SQLite file")


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"hello" * 100])
def test_a_file_that_is_not_a_store_is_refused_untouched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    refused(path, "is not an Afterwit store")


def test_a_damaged_store_is_refused_in_plain_words(path: Path, store: Store) -> None:
    add(store, "a")
    store.close()
    whole = bytearray(path.read_bytes())
    whole[100:8192] = b"\xff" * (8192 - 100)
    path.write_bytes(whole)
    with pytest.raises(StoreError, match=r"is damaged: .* Restore it from a copy"):
        SqliteStore.open(path, fingerprint="model")
    assert path.read_bytes() == whole


def test_a_folder_in_the_stores_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        SqliteStore.open(tmp_path, fingerprint=None)


def test_a_store_that_is_moved_while_it_is_open_takes_nothing_until_it_is_back(
    path: Path, store: Store
) -> None:
    add(store, "before")
    home, away = path.parent, path.parent.with_name("away")
    home.rename(away)
    for _ in range(2):  # nothing there, then another store
        with pytest.raises(StoreUnavailable, match="was moved, replaced or deleted while it is open"):
            add(store, "lost")
        SqliteStore.open(path, fingerprint="model").close()
    shutil.rmtree(home)
    away.rename(home)
    add(store, "after")
    assert [record.turn.id for record in store.turns()] == ["before", "after"]


def test_migrations_run_in_order_from_the_version_of_the_store_and_keep_its_rows(path: Path) -> None:
    later = (*MIGRATIONS, ("ALTER TABLE meta ADD COLUMN note TEXT",), ("UPDATE meta SET note = 'seen'",))
    with closing(SqliteStore.open(path, fingerprint="model")) as store:
        store.bind("model")
    database = open_file(path, fingerprint="model", migrations=later)
    assert schema_of(database) == SCHEMA + 2
    assert database.rows("SELECT note FROM meta")[0]["note"] == "seen"
    database.close()


def test_a_migration_that_fails_leaves_the_store_as_it_was(path: Path, store: Store) -> None:
    add(store, "a")
    store.close()
    broken = (*MIGRATIONS, ("ALTER TABLE meta ADD COLUMN note TEXT", "NOT SQL AT ALL"))
    with pytest.raises(StoreError):
        open_file(path, fingerprint="model", migrations=broken)
    again = SqliteStore.open(path, fingerprint="model")
    assert again.turn("a").turn.id == "a"
    again.close()


def test_a_file_is_marked_as_ours(path: Path, store: Store) -> None:
    store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_deleted_content_is_overwritten_whatever_the_library_was_built_with(path: Path) -> None:
    database = open_file(path, fingerprint=None)
    assert database.rows("PRAGMA secure_delete")[0][0] == 1
    database.close()
