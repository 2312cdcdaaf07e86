"""Version 7: what is doubtful about a verdict, what a person said of it, the kind of call that it judges; and
sessions that never train.

`verdicts.review` is NULL, 'yes' or 'no': a new verdict of a turn waits for a new review. `flags` is a JSON
list.
"""

STATEMENTS = (
    "ALTER TABLE verdicts ADD COLUMN flags BLOB",
    "ALTER TABLE verdicts ADD COLUMN review TEXT",
    "ALTER TABLE verdicts ADD COLUMN signature TEXT",
    "CREATE INDEX verdicts_by_signature ON verdicts (signature) WHERE signature IS NOT NULL",
    "CREATE TABLE excluded (session TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID",
)
