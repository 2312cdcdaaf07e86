"""From a path to a connection. A store is created whole or not at all; a foreign file stays untouched."""

from __future__ import annotations

import os
import sqlite3
import struct
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from afterwit.core.errors import StoreError, StoreMismatch
from afterwit.store.sql.schema import MIGRATIONS
from afterwit.store.sqlite.database import BROKEN, SqliteDatabase, in_plain_words

Migrations = Sequence[Sequence[str]]

APPLICATION_ID = 0x4157_5754
"""Marks a file as ours ("AWWT"), in its header."""
BUSY_MS = 10_000
"""Milliseconds that a statement waits for another process's transaction, which takes a few."""
WAL_KEPT_BYTES = 64 * 2**20
"""The log file shrinks to this many bytes after a checkpoint."""
SURVIVES_A_KILL = "NORMAL"
"""The `synchronous` mode that keeps what was written when a process is killed, not when the power fails."""
MAGIC = b"SQLite format 3\0"
USER_VERSION_AT, APPLICATION_ID_AT, HEADER_BYTES = 60, 68, 100


def open_database(
    path: Path,
    *,
    fingerprint: str | None,
    synchronous: str = SURVIVES_A_KILL,
    migrations: Migrations = MIGRATIONS,
) -> SqliteDatabase:
    """Open the store at `path`, created if missing and bound to `fingerprint` (None: any model's).

    Raises StoreMismatch for a newer schema, another fingerprint or a file that is not a store, StoreError if
    the disk or the permissions do not allow it. The file is untouched then.
    """
    try:
        if not path.exists():
            _create(path, migrations)
        _check_header(path, len(migrations))
        database = SqliteDatabase(connect(path, synchronous), path)
    except BROKEN as error:
        raise in_plain_words(error, path) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error.strerror}.") from error
    try:
        _check_schema(database, len(migrations))
        _bind(database, fingerprint)
        migrate(database, migrations)
    except BaseException:
        database.close()
        raise
    return database


def _create(path: Path, migrations: Migrations) -> None:
    """Build the file beside its place, then link it in: never half a store; of two creators one wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    os.close(handle)
    draft = Path(name)
    try:
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            migrate(SqliteDatabase(connection, path), migrations)
            connection.execute("PRAGMA journal_mode = WAL")
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _check_header(path: Path, newest: int) -> None:
    """Refuse a foreign or newer file by its header, before SQLite opens it."""
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        raise StoreMismatch(f"{path} is not an Afterwit store. Move it away, or name another --home.")
    (application,) = struct.unpack_from(">I", header, APPLICATION_ID_AT)
    if application != APPLICATION_ID:
        raise StoreMismatch(f"{path} is another program's SQLite file. Move it away, or name another --home.")
    (schema,) = struct.unpack_from(">I", header, USER_VERSION_AT)
    _refuse_newer(path, schema, newest)


def _refuse_newer(path: Path, schema: int, newest: int) -> None:
    if schema > newest:
        raise StoreMismatch(
            f"{path} has schema {schema}; this Afterwit knows {newest} at most. Install a newer Afterwit."
        )


def connect(path: Path, synchronous: str) -> sqlite3.Connection:
    """A connection to an existing store, unchecked."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    connection.row_factory = sqlite3.Row
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}")
    connection.execute("PRAGMA secure_delete = ON")  # what was pruned must not stay readable in free pages
    return connection


def schema_of(database: SqliteDatabase) -> int:
    return int(database.rows("PRAGMA user_version")[0][0])


def _check_schema(database: SqliteDatabase, newest: int) -> None:
    """After a crash the header may be older than the log: ask SQLite too."""
    _refuse_newer(database.path, schema_of(database), newest)


def _bind(database: SqliteDatabase, fingerprint: str | None) -> None:
    """A store accepts only the first fingerprint that it was opened with."""
    if fingerprint is None:
        return
    bound = database.row("SELECT value FROM meta WHERE key = 'fingerprint'")
    if bound is None:
        with database.transaction():
            database.execute(
                "INSERT INTO meta VALUES ('fingerprint', ?) ON CONFLICT DO NOTHING", (fingerprint,)
            )
        bound = database.row("SELECT value FROM meta WHERE key = 'fingerprint'")
    if bound is None or bound["value"] != fingerprint:
        raise StoreMismatch(
            f"{database.path} belongs to another model or tokenizer: their fingerprint is "
            f"{bound and bound['value']}, this model's {fingerprint}. Serve the model it was made with, or "
            "name another --home."
        )


def migrate(database: SqliteDatabase, migrations: Migrations) -> None:
    """Bring the schema to the newest version: all steps or none."""
    if schema_of(database) == len(migrations):
        return
    with database.transaction():
        for statements in migrations[schema_of(database) :]:
            for statement in statements:
                database.execute(statement)
        database.execute(f"PRAGMA user_version = {len(migrations)}")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
