"""Version 1: every table.

A turn is split by how often its parts change. `turns` holds identity, binding and state: narrow, changed
often. `contents` holds what was said and sampled: wide, written once. Both share `seq`, the order of arrival.
"""

STATEMENTS = (
    """
        CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
        """,
    """
        CREATE TABLE turns (
            seq INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            scope TEXT NOT NULL,
            session TEXT NOT NULL,
            parent TEXT,
            kind TEXT NOT NULL,
            created REAL NOT NULL,
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
    "CREATE INDEX turns_by_prompt ON turns (prompt_hash)",
    "CREATE INDEX turns_by_full ON turns (full_hash)",
    "CREATE INDEX turns_by_parent ON turns (parent) WHERE parent IS NOT NULL",
    "CREATE INDEX turns_by_client ON turns (client_session, seq) WHERE client_session IS NOT NULL",
    "CREATE INDEX main_turns ON turns (scope, seq) WHERE kind = 'main'",
    "CREATE INDEX side_turns ON turns (scope, seq) WHERE kind = 'side'",
    """
        CREATE TABLE contents (
            seq INTEGER PRIMARY KEY,
            shape TEXT,
            model TEXT NOT NULL,
            conversation BLOB NOT NULL,
            prompt_ids BLOB NOT NULL,
            sampling BLOB NOT NULL,
            ids BLOB NOT NULL,
            logprobs BLOB NOT NULL,
            versions BLOB NOT NULL,
            forced BLOB NOT NULL,
            basis TEXT NOT NULL,
            cache_version INTEGER,
            message BLOB NOT NULL,
            finish TEXT NOT NULL,
            teaches INTEGER NOT NULL
        )
        """,
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
            at REAL NOT NULL
        )
        """,
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
            parent INTEGER,
            origin TEXT NOT NULL,
            created REAL NOT NULL,
            restores INTEGER,
            reverts BLOB NOT NULL,
            metrics BLOB NOT NULL,
            committed_at REAL NOT NULL,
            published_at REAL
        )
        """,
    """
        CREATE TABLE trained (
            version INTEGER NOT NULL,
            turn TEXT NOT NULL,
            replayed INTEGER NOT NULL,
            PRIMARY KEY (version, turn)
        ) WITHOUT ROWID
        """,
    "CREATE INDEX trained_by_turn ON trained (turn)",
    """
        CREATE TABLE statuses (
            stage TEXT PRIMARY KEY, ok INTEGER NOT NULL, message TEXT NOT NULL, at REAL NOT NULL
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
