"""Version 13: the updates that a rollback brings back, as one does that goes forward again."""

STATEMENTS = ("ALTER TABLE versions ADD COLUMN returns BLOB NOT NULL DEFAULT '[]'",)
