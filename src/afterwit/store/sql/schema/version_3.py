"""Version 3: turns of conversations that were recorded elsewhere."""

STATEMENTS = ("ALTER TABLE turns ADD COLUMN imported INTEGER NOT NULL DEFAULT 0",)
