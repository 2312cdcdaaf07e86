"""Creating, opening, refusing, migrating."""

from __future__ import annotations

from contextlib import ExitStack, closing

import psycopg
import pytest

from afterwit.errors import SettingError, StoreError, StoreMismatch, StoreUnavailable
from afterwit.store.postgresql import PostgresqlStore, open_database, schema_of
from afterwit.store.schema import MIGRATIONS, SCHEMA
from afterwit.store.upkeep import STATUS_KEPT_S
from tests.store.examples import add
from tests.store.places import MODEL
from tests.store.postgresql.server import server


def do(url: str, sql: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


def tables(url: str) -> set[object]:
    return {
        name for (name,) in do(url, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    }


def test_a_store_exists_once_it_was_opened(url: str) -> None:
    assert not PostgresqlStore.exists(url)
    PostgresqlStore.open(url, fingerprint=None).close()
    assert PostgresqlStore.exists(url)


def test_a_store_of_another_model_is_refused(url: str, store: PostgresqlStore) -> None:
    store.bind(MODEL)
    with pytest.raises(StoreMismatch, match="belongs to another model"):
        store.bind("another")
    with pytest.raises(StoreMismatch, match="belongs to another model"):
        PostgresqlStore.open(url, fingerprint="another")
    PostgresqlStore.open(url, fingerprint=None).close()


def test_a_newer_schema_is_refused_untouched(url: str, store: PostgresqlStore) -> None:
    do(url, f"UPDATE meta SET value = '{SCHEMA + 1}' WHERE key = 'schema'")
    with pytest.raises(
        StoreMismatch, match=f"has schema {SCHEMA + 1}; this Afterwit supports at most {SCHEMA}"
    ):
        PostgresqlStore.open(url, fingerprint=MODEL)


@pytest.mark.parametrize(
    "theirs",
    ["CREATE TABLE turns (a int)", "CREATE TABLE meta (key text, value text); CREATE TABLE turns (a int)"],
)
def test_another_programs_tables_are_refused_untouched(url: str, theirs: str) -> None:
    do(url, theirs)
    before = tables(url)
    with pytest.raises(StoreMismatch, match="holds another program's tables"):
        PostgresqlStore.open(url, fingerprint=MODEL)
    assert tables(url) == before


def test_tables_of_others_beside_ours_do_not_matter(url: str) -> None:
    do(url, "CREATE TABLE theirs (a int)")
    with closing(PostgresqlStore.open(url, fingerprint=MODEL)) as store:
        add(store, "a")
    assert "theirs" in tables(url)


def test_migrations_run_in_order_from_the_version_of_the_store_and_keep_its_rows(url: str) -> None:
    with closing(PostgresqlStore.open(url, fingerprint=MODEL)) as store:
        store.bind(MODEL)
    later = (*MIGRATIONS, ("ALTER TABLE meta ADD COLUMN note TEXT",), ("UPDATE meta SET note = 'seen'",))
    with closing(open_database(url, fingerprint=MODEL, migrations=later)) as database:
        assert schema_of(database) == SCHEMA + 2
        assert database.rows("SELECT note FROM meta WHERE key = 'fingerprint'")[0]["note"] == "seen"


def test_a_migration_that_fails_leaves_the_store_as_it_was(url: str, store: PostgresqlStore) -> None:
    add(store, "a")
    broken = (*MIGRATIONS, ("ALTER TABLE meta ADD COLUMN note TEXT", "NOT SQL AT ALL"))
    with pytest.raises(StoreError):
        open_database(url, fingerprint=MODEL, migrations=broken)
    with closing(PostgresqlStore.open(url, fingerprint=MODEL)) as again:
        assert again.turn("a").turn.id == "a"


def test_a_store_is_made_whole_or_not_at_all(url: str) -> None:
    with pytest.raises(StoreError):
        open_database(url, fingerprint=None, migrations=(*MIGRATIONS, ("NOT SQL AT ALL",)))
    assert tables(url) == set()


def test_a_database_without_utf8_is_refused() -> None:
    server().do("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    url = server().url("public").replace(":///postgres?", ":///latin?")
    with pytest.raises(StoreError, match="is encoded as LATIN1: CREATE DATABASE"):
        PostgresqlStore.open(url, fingerprint=None)


def test_a_user_that_may_not_make_tables_is_told_so(url: str) -> None:
    server().do("CREATE ROLE guest LOGIN")
    server().do(f"GRANT USAGE ON SCHEMA {url.rpartition('search_path%3D')[2]} TO guest")
    with pytest.raises(StoreUnavailable, match=r"cannot be written: permission denied"):
        PostgresqlStore.open(url.replace("user=afterwit", "user=guest"), fingerprint=None)


def test_a_url_that_cannot_be_read_is_refused_by_the_settings_name() -> None:
    with pytest.raises(SettingError, match=r"^store\.url cannot be read: "):
        PostgresqlStore.open("postgresql://host/db?no_such_word=1", fingerprint=None)


def test_a_text_with_nul_is_stored_with_its_symbol(store: PostgresqlStore) -> None:
    store.set_note("judge", "a\0b")
    assert store.note("judge") == "a␀b"


def test_names_sort_by_their_bytes(store: PostgresqlStore) -> None:
    for name in ("b", "B", "ä", "a"):
        store.set_status(name, True, "", now=0.0)
    assert [status.stage for status in store.statuses()] == ["B", "a", "b", "ä"]


def test_each_machine_has_its_own_status_of_a_stage(url: str) -> None:
    with ExitStack() as opened:
        one, two = (
            opened.enter_context(closing(PostgresqlStore.open(url, fingerprint=None, machine=name)))
            for name in ("one", "two")
        )
        one.set_status("judge", False, "it does not answer", now=1.0)
        two.set_status("judge", True, "judging", now=2.0)
        one.set_status("learn", True, "waiting", now=3.0)
        assert [status.name for status in two.statuses()] == ["judge on one", "judge on two", "learn on one"]
        assert [status.ok for status in one.statuses()] == [False, True, True]
        one.set_status("judge", True, "judging", now=4.0)
        assert [status.ok for status in two.statuses()] == [True, True, True]


def test_a_machine_that_was_silent_for_a_week_is_gone_once_another_reports_the_stage(url: str) -> None:
    with ExitStack() as opened:
        one, two = (
            opened.enter_context(closing(PostgresqlStore.open(url, fingerprint=None, machine=name)))
            for name in ("one", "two")
        )
        one.set_status("judge", False, "it does not answer", now=0.0)
        one.set_status("learn", False, "it was killed", now=0.0)
        two.set_status("judge", True, "judging", now=STATUS_KEPT_S)
        assert [status.name for status in two.statuses()] == ["judge on one", "judge on two", "learn on one"]
        two.set_status("judge", True, "judging", now=STATUS_KEPT_S + 1)
        assert [status.name for status in two.statuses()] == ["judge on two", "learn on one"]
