"""The store's port, for packages that read turns or add a database."""

from afterwit.store import Record, Store, open_store

__all__ = ["Record", "Store", "open_store"]
