"""The store's port over one SQLite file."""

from afterwit.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
