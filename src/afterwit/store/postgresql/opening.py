"""From a URL to a database that is ours: made whole or not at all, migrated, bound to one model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import psycopg
from psycopg.conninfo import conninfo_to_dict

from afterwit.errors import SettingError, StoreError, StoreMismatch
from afterwit.store.postgresql.connection import BESIDE, Link, statement_of_schema
from afterwit.store.postgresql.database import PostgresqlDatabase, in_plain_words
from afterwit.store.sql.schema import MIGRATIONS

TABLES = """
    SELECT tablename FROM pg_tables
    WHERE schemaname = ANY (current_schemas(false)) AND tablename IN ('meta', 'turns')
"""
"""Asked of the catalogue itself: what a connection remembers may be older than the lock it waited for."""


Migrations = Sequence[Sequence[str]]


OLDEST_SERVER = 14


MAKING = 0x4157_5754
"""The advisory lock of processes that make or migrate a store."""


SCHEMA_KEY, FINGERPRINT_KEY = "schema", "fingerprint"


def open_database(
    url: str, *, fingerprint: str | None, migrations: Migrations = MIGRATIONS
) -> PostgresqlDatabase:
    """Open the store at `url`, made if its schema is empty, and bound to `fingerprint` (None: any model's).

    Raises StoreMismatch for a newer schema, another fingerprint or tables that are not a store's, which stay
    untouched; StoreUnavailable if the server does not answer; StoreError if it is too old or holds no UTF-8.
    """
    database = _connect(url)
    try:
        _check_server(database)
        _migrate(database, migrations)
        database.number = int(database.rows("SELECT 'meta'::regclass::oid::bigint")[0][0]) - 2**31
        _bind(database, fingerprint)
    except BaseException:
        database.close()
        raise
    return database


def store_exists(url: str) -> bool:
    """Whether a store was made at `url`. Raises StoreMismatch for tables of others, StoreUnavailable."""
    with closing(_connect(url)) as database:
        return schema_of(database) > 0


def _connect(url: str) -> PostgresqlDatabase:
    place = place_of(url)
    try:
        return PostgresqlDatabase(Link(url), place)
    except psycopg.Error as error:
        raise in_plain_words(error, place) from error


def place_of(url: str) -> str:
    """The URL without what is secret. Raises SettingError if it cannot be read."""
    try:
        said = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise SettingError(f"store.url cannot be read: {str(error).strip()}") from error
    host, port = said.get("host") or "", said.get("port")
    return f"postgresql://{host}{f':{port}' if port else ''}/{said.get('dbname') or ''}"


def _check_server(database: PostgresqlDatabase) -> None:
    ((version, encoding),) = database.rows(
        "SELECT current_setting('server_version_num')::bigint / 10000, current_setting('server_encoding')"
    )
    if version < OLDEST_SERVER:
        raise StoreError(
            f"{database.place} runs PostgreSQL {version}; {OLDEST_SERVER} is the oldest that will do"
        )
    if encoding != "UTF8":
        raise StoreError(f"{database.place} is encoded as {encoding}: CREATE DATABASE ... ENCODING 'UTF8'")


def schema_of(database: PostgresqlDatabase) -> int:
    """The version of the store's schema; 0 if there is none. Raises StoreMismatch for tables of others."""
    tables = {row["tablename"] for row in database.rows(TABLES)}
    if not tables:
        return 0
    row = database.row("SELECT value FROM meta WHERE key = ?", (SCHEMA_KEY,)) if len(tables) == 2 else None
    if row is None:
        raise StoreMismatch(
            f"{database.place} holds another program's tables. Name another database, or a schema of its own."
        )
    return int(row["value"])


def _migrate(database: PostgresqlDatabase, migrations: Migrations) -> None:
    """Bring the schema to the newest version: all steps or none, one process at a time."""
    newest = len(migrations)
    if (schema := schema_of(database)) == newest:
        return
    if schema > newest:
        raise StoreMismatch(
            f"{database.place} has schema {schema}; this Afterwit knows {newest} at most."
            " Install a newer Afterwit."
        )
    database.number = MAKING
    with database.alone():
        if schema_of(database) >= newest:  # another process was first
            return
        for version in range(schema_of(database) + 1, newest + 1):
            for statement in map(statement_of_schema, migrations[version - 1]):
                database.execute(statement)
            for statement in BESIDE.get(version, ()):
                database.execute(statement)
        database.put("meta", {"key": SCHEMA_KEY, "value": str(newest)}, key="key")


def _bind(database: PostgresqlDatabase, fingerprint: str | None) -> None:
    """A store accepts only the first fingerprint that it was opened with."""
    if fingerprint is None:
        return
    with database.transaction():
        database.execute(
            "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO NOTHING", (FINGERPRINT_KEY, fingerprint)
        )
        bound = database.rows("SELECT value FROM meta WHERE key = ?", (FINGERPRINT_KEY,))[0]["value"]
    if bound != fingerprint:
        raise StoreMismatch(
            f"{database.place} belongs to another model or tokenizer: their fingerprint is {bound}, this "
            f"model's {fingerprint}. Serve the model it was made with, or name another store.url."
        )
