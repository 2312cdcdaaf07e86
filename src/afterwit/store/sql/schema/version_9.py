"""Version 9: when a turn's response was whole (NULL in older turns); turns are found by when they ended."""

STATEMENTS = (
    "ALTER TABLE turns ADD COLUMN recorded REAL",
    "CREATE INDEX ended_turns ON turns (moved_at, seq) WHERE state IN ('TRAINED', 'SKIPPED')",
)
