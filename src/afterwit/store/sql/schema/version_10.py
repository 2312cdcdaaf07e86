"""Version 10: the adapter that served a turn, and the one that a version is of. What was there is shared."""

TABLES = ("turns", "versions", "episodes", "suite", "events")

STATEMENTS = (
    *(f"ALTER TABLE {table} ADD COLUMN adapter TEXT NOT NULL DEFAULT 'shared'" for table in TABLES),
    "CREATE INDEX turns_by_adapter ON turns (adapter) WHERE adapter <> 'shared'",
)
