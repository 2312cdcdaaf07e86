"""The schema, in SQLite's dialect: PostgreSQL's differs by the names of types alone (`postgresql.TYPES`).

A turn is split by how often its parts change. `turns` holds identity, binding and state: narrow, changed
often. `contents` holds the conversation and what was sampled: wide, written once. Both share `seq`, the order
of arrival. To change the schema, append a version to MIGRATIONS; never edit one that was released.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Migrations = Sequence[Sequence[str]]

FIRST = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """
        CREATE TABLE turns (
            seq INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            scope TEXT NOT NULL,
            session TEXT NOT NULL,
            parent TEXT,
            kind TEXT NOT NULL,
            created REAL NOT NULL,
            adapter TEXT NOT NULL DEFAULT 'shared',
            imported INTEGER NOT NULL DEFAULT 0,
            client_session BLOB,
            prompt_hash BLOB NOT NULL,
            full_hash BLOB NOT NULL,
            depth INTEGER NOT NULL,
            full_depth INTEGER NOT NULL,
            delivered INTEGER NOT NULL,
            superseded_by TEXT,
            oldest_version INTEGER NOT NULL,
            state TEXT NOT NULL,
            reason TEXT,
            moved_at REAL NOT NULL,
            revision INTEGER NOT NULL DEFAULT 0,
            owner TEXT,
            lease_until REAL,
            claimed_revision INTEGER,
            attempts INTEGER NOT NULL DEFAULT 0,
            retry_at REAL NOT NULL DEFAULT 0,
            error TEXT
        )
    """,
    "CREATE INDEX turns_by_state ON turns (state, reason)",
    "CREATE INDEX turns_by_prompt ON turns (prompt_hash, seq)",
    "CREATE INDEX turns_by_full ON turns (full_hash, seq)",
    "CREATE INDEX turns_by_parent ON turns (parent) WHERE parent IS NOT NULL",
    "CREATE INDEX turns_by_client ON turns (client_session, seq) WHERE client_session IS NOT NULL",
    "CREATE INDEX turns_by_session ON turns (session, kind)",
    "CREATE INDEX turns_by_adapter ON turns (adapter) WHERE adapter <> 'shared'",
    "CREATE INDEX main_turns ON turns (scope, seq) WHERE kind = 'main'",
    "CREATE INDEX side_turns ON turns (scope, seq) WHERE kind = 'side'",
    # `conversation` and `prompt_ids` hold what differs from the row `base`: see `rows.DeltaWriter`.
    # Short columns come first, because SQLite reads a row from its beginning.
    """
        CREATE TABLE contents (
            seq INTEGER PRIMARY KEY,
            shape TEXT,
            model TEXT NOT NULL,
            finish TEXT NOT NULL,
            teaches INTEGER NOT NULL,
            basis TEXT NOT NULL,
            cache_version INTEGER,
            base INTEGER,
            conversation_shared INTEGER NOT NULL DEFAULT 0,
            prompt_ids_shared INTEGER NOT NULL DEFAULT 0,
            prompt_digest BLOB,
            message BLOB NOT NULL,
            conversation BLOB NOT NULL,
            prompt_ids BLOB NOT NULL,
            sampling BLOB NOT NULL,
            ids BLOB NOT NULL,
            logprobs BLOB NOT NULL,
            versions BLOB NOT NULL,
            forced BLOB NOT NULL
        )
    """,
    "CREATE INDEX contents_by_base ON contents (base) WHERE base IS NOT NULL",
    """
        CREATE TABLE next_states (
            seq INTEGER PRIMARY KEY, messages BLOB NOT NULL, answered_by TEXT, at REAL NOT NULL
        )
    """,
    """
        CREATE TABLE feedback (
            number INTEGER PRIMARY KEY, seq INTEGER NOT NULL, reward INTEGER, words TEXT, at REAL NOT NULL
        )
    """,
    "CREATE INDEX feedback_by_turn ON feedback (seq)",
    # `flags` is a JSON list, `review` is 'yes', 'no' or NULL; `previous` is the signature of the call before
    """
        CREATE TABLE verdicts (
            seq INTEGER PRIMARY KEY,
            reward INTEGER NOT NULL,
            source TEXT NOT NULL,
            hints BLOB NOT NULL,
            hinted INTEGER NOT NULL,
            rl INTEGER NOT NULL,
            opd INTEGER NOT NULL,
            revision INTEGER NOT NULL,
            at REAL NOT NULL,
            flags TEXT,
            review TEXT,
            signature TEXT,
            previous TEXT
        )
    """,
    "CREATE INDEX verdicts_by_signature ON verdicts (signature) WHERE signature IS NOT NULL",
    "CREATE INDEX flagged_verdicts ON verdicts (seq) WHERE flags IS NOT NULL",
    """
        CREATE TABLE votes (
            seq INTEGER NOT NULL,
            place INTEGER NOT NULL,
            question TEXT NOT NULL,
            words TEXT NOT NULL,
            value INTEGER,
            hint TEXT,
            rejected TEXT,
            PRIMARY KEY (seq, place)
        ) WITHOUT ROWID
    """,
    "CREATE INDEX invalid_votes ON votes (seq) WHERE value IS NULL",
    """
        CREATE TABLE versions (
            number INTEGER PRIMARY KEY,
            adapter TEXT NOT NULL DEFAULT 'shared',
            parent INTEGER,
            origin TEXT NOT NULL,
            created REAL NOT NULL,
            restores INTEGER,
            reverts BLOB NOT NULL,
            returns BLOB NOT NULL,
            metrics BLOB NOT NULL,
            suite BLOB,
            committed_at REAL NOT NULL,
            published_at REAL
        )
    """,
    """
        CREATE TABLE trained (
            version INTEGER NOT NULL,
            turn TEXT NOT NULL,
            replayed INTEGER NOT NULL,
            effect BLOB,
            PRIMARY KEY (version, turn)
        ) WITHOUT ROWID
    """,
    "CREATE INDEX trained_by_turn ON trained (turn)",
    """
        CREATE TABLE episodes (
            number INTEGER PRIMARY KEY,
            turn TEXT NOT NULL UNIQUE,
            session TEXT NOT NULL,
            source TEXT NOT NULL,
            adapter TEXT NOT NULL DEFAULT 'shared',
            version INTEGER NOT NULL,
            bad TEXT,
            complaint INTEGER NOT NULL,
            kind TEXT NOT NULL,
            at REAL NOT NULL
        )
    """,
    # its own copy of what was sampled, which outlives the turn's content
    """
        CREATE TABLE suite (
            turn TEXT PRIMARY KEY,
            session TEXT NOT NULL,
            adapter TEXT NOT NULL DEFAULT 'shared',
            stratum TEXT NOT NULL,
            source TEXT NOT NULL,
            version INTEGER NOT NULL,
            since REAL NOT NULL,
            prompt_ids BLOB NOT NULL,
            ids BLOB NOT NULL,
            sure BLOB NOT NULL
        ) WITHOUT ROWID
    """,
    "CREATE INDEX suite_by_stratum ON suite (stratum, since)",
    """
        CREATE TABLE events (
            number INTEGER PRIMARY KEY,
            adapter TEXT NOT NULL DEFAULT 'shared',
            kind TEXT NOT NULL,
            at REAL NOT NULL,
            version INTEGER NOT NULL,
            evidence REAL NOT NULL,
            words TEXT NOT NULL,
            episode INTEGER NOT NULL
        )
    """,
    "CREATE TABLE excluded (session TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID",
    """
        CREATE TABLE statuses (
            stage TEXT NOT NULL,
            machine TEXT NOT NULL,
            ok INTEGER NOT NULL,
            message TEXT NOT NULL,
            at REAL NOT NULL,
            PRIMARY KEY (stage, machine)
        ) WITHOUT ROWID
    """,
    """
        CREATE TABLE keys (
            name TEXT PRIMARY KEY,
            hash TEXT NOT NULL UNIQUE,
            scopes TEXT NOT NULL,
            created REAL NOT NULL,
            revoked REAL
        )
    """,
)
"""Every table but those of lessons."""

LESSONS = (
    # `words` are a person's edit, else NULL; `general` is 1 if a person accepted it for other prompts
    """
        CREATE TABLE lessons (
            number INTEGER PRIMARY KEY,
            adapter TEXT NOT NULL,
            source TEXT NOT NULL,
            words TEXT,
            general INTEGER,
            dropped REAL
        )
    """,
    # a turn with a lesson: corrected in these words, or, with a `prompt`, practised on that turn's prompt,
    # without words if that is an approved one that goes along; `gap` is the whole answer's, in nats
    """
        CREATE TABLE taught (
            seq INTEGER PRIMARY KEY,
            lesson INTEGER NOT NULL,
            prompt TEXT,
            words TEXT NOT NULL,
            tokens INTEGER NOT NULL,
            gap REAL,
            version INTEGER,
            at REAL NOT NULL
        )
    """,
    "CREATE INDEX taught_by_lesson ON taught (lesson, seq)",
    "CREATE INDEX taught_by_prompt ON taught (prompt) WHERE prompt IS NOT NULL",
)
"""Lessons and their practice."""

TEACHING = ("ALTER TABLE feedback ADD COLUMN hint TEXT", "ALTER TABLE feedback ADD COLUMN correction TEXT")
"""Hints and corrections by feedback."""

SPOILING = ("ALTER TABLE lessons ADD COLUMN spoils TEXT",)
"""The owner of the approved turns that a lesson contradicts."""

RESTRICTING = ("ALTER TABLE lessons ADD COLUMN scope TEXT",)
"""The client to whose prompts a lesson is restricted."""

EARLIER = (
    """
        CREATE TABLE earlier (
            seq INTEGER NOT NULL,
            lesson INTEGER NOT NULL,
            said TEXT NOT NULL,
            session TEXT NOT NULL,
            words TEXT NOT NULL,
            PRIMARY KEY (seq, lesson)
        ) WITHOUT ROWID
    """,
)
"""Earlier lessons in the hint of a practised answer, with the corrected turns whose words these are."""

MIGRATIONS: Migrations = (FIRST, LESSONS, TEACHING, SPOILING, RESTRICTING, EARLIER)

SCHEMA = len(MIGRATIONS)
"""The version that this Afterwit writes. A store with a greater one is refused."""

TABLES: Mapping[str, str | None] = {
    name: column if kind == "INTEGER" else None
    for statements in MIGRATIONS
    for statement in statements
    for name, column, kind in re.findall(r"CREATE TABLE (\w+) \(\s*(\w+) (\w+)", statement)
    if name != "meta"
}
"""Every table but `meta`, and the number by which its rows are read in pages: its first column."""
