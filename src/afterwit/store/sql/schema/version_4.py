"""Version 4: a turn's conversation and prompt ids are stored as what comes behind those of `base`.

The `..._shared` columns are bytes of the base's whole value. `prompt_digest` is NULL in rows of version 3,
which are all stored whole.
"""

STATEMENTS = (
    "ALTER TABLE contents ADD COLUMN base INTEGER",
    "ALTER TABLE contents ADD COLUMN conversation_shared INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE contents ADD COLUMN prompt_ids_shared INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE contents ADD COLUMN prompt_digest BLOB",
    "CREATE INDEX contents_by_base ON contents (base) WHERE base IS NOT NULL",
)
