"""The schema: one file for each version, which brings a store from the version before it to this one."""

from afterwit.store.sqlite.schema import version_1, version_2

__all__ = ["APPLICATION_ID", "MIGRATIONS", "SCHEMA"]

APPLICATION_ID = 0x4157_5754
"""Marks a SQLite file as ours ("AWWT"), in its header."""

MIGRATIONS = (version_1.STATEMENTS, version_2.STATEMENTS)

SCHEMA = len(MIGRATIONS)
"""The version this Afterwit writes. A store with a greater one is refused."""
