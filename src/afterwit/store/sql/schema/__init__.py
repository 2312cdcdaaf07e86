"""The schema: one file for each version, with the statements that migrate the version before it."""

from afterwit.store.sql.schema import (
    version_1,
    version_2,
    version_3,
    version_4,
    version_5,
    version_6,
    version_7,
    version_8,
    version_9,
    version_10,
    version_11,
    version_12,
    version_13,
)

__all__ = ["MIGRATIONS", "SCHEMA"]

MIGRATIONS = (
    version_1.STATEMENTS,
    version_2.STATEMENTS,
    version_3.STATEMENTS,
    version_4.STATEMENTS,
    version_5.STATEMENTS,
    version_6.STATEMENTS,
    version_7.STATEMENTS,
    version_8.STATEMENTS,
    version_9.STATEMENTS,
    version_10.STATEMENTS,
    version_11.STATEMENTS,
    version_12.STATEMENTS,
    version_13.STATEMENTS,
)

SCHEMA = len(MIGRATIONS)
"""The version this Afterwit writes. A store with a greater one is refused."""
