"""Version 11: of a verdict the call before its own: empty if there was none, NULL in older ones."""

STATEMENTS = ("ALTER TABLE verdicts ADD COLUMN previous TEXT",)
