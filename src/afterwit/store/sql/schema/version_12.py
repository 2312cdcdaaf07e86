"""Version 12: a status of each stage of each machine. A start reports all of them anew."""

STATEMENTS = (
    "DROP TABLE statuses",
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
)
