"""Version 5: how episodes ended, what people approved, and what was decided about versions.

`suite` keeps its own copy of what was sampled, so that it outlives the turn's content.
"""

STATEMENTS = (
    """
        CREATE TABLE episodes (
            number INTEGER PRIMARY KEY,
            turn TEXT NOT NULL UNIQUE,
            session TEXT NOT NULL,
            source TEXT NOT NULL,
            version INTEGER NOT NULL,
            bad TEXT,
            at REAL NOT NULL
        )
        """,
    """
        CREATE TABLE suite (
            turn TEXT PRIMARY KEY,
            session TEXT NOT NULL,
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
            kind TEXT NOT NULL,
            at REAL NOT NULL,
            version INTEGER NOT NULL,
            evidence REAL NOT NULL,
            words TEXT NOT NULL,
            episode INTEGER NOT NULL
        )
        """,
    "ALTER TABLE versions ADD COLUMN suite BLOB",
)
