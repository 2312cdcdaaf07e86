"""The schema: one file for each version, with the statements that migrate the version before it."""

from afterwit.store.sqlite.schema import (
    version_1,
    version_2,
    version_3,
    version_4,
    version_5,
    version_6,
    version_7,
    version_8,
)

__all__ = ["APPLICATION_ID", "MIGRATIONS", "SCHEMA"]

APPLICATION_ID = 0x4157_5754
"""Marks a SQLite file as ours ("AWWT"), in its header."""

MIGRATIONS = (
    version_1.STATEMENTS,
    version_2.STATEMENTS,
    version_3.STATEMENTS,
    version_4.STATEMENTS,
    version_5.STATEMENTS,
    version_6.STATEMENTS,
    version_7.STATEMENTS,
    version_8.STATEMENTS,
)

SCHEMA = len(MIGRATIONS)
"""The version this Afterwit writes. A store with a greater one is refused."""
