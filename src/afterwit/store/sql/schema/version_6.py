"""Version 6: what an update did to each of its turns, and which requests drew a complaint.

Episodes that ended before have no kind.
"""

STATEMENTS = (
    "ALTER TABLE trained ADD COLUMN effect BLOB",
    "ALTER TABLE episodes ADD COLUMN complaint INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE episodes ADD COLUMN kind TEXT",
    """
        UPDATE episodes SET complaint = 1 WHERE coalesce(bad, '') <> 'no_end' AND turn IN (
            SELECT t.id FROM turns t JOIN verdicts v USING (seq) WHERE v.reward = -1
        )
        """,
)
