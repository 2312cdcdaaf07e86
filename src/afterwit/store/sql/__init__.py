"""The store's port as SQL that every database behind it runs; `database.py` names where they differ."""

from afterwit.store.sql.store import SqlStore

__all__ = ["SqlStore"]
