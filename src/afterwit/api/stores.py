"""The store's port, for packages that read turns or add a database."""

from afterwit.store import Filter, Record, Store, open_store

__all__ = ["Filter", "Record", "Store", "open_store"]
