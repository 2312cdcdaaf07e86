"""Layer 2: the bus. SQLite in WAL mode: turns, next states, verdicts, versions, leases, keys, health.

`Store` is the whole of it; `AsyncStore` puts a writer thread before one. `schema` declares every column once.
"""

from afterwit.store.asynchronous import AsyncStore
from afterwit.store.port import ParentLookup, Store
from afterwit.store.records import (
    Committed,
    Counts,
    FeedbackOutcome,
    Filter,
    Key,
    Pruned,
    Reconciled,
    Record,
    Status,
    VersionRecord,
)

__all__ = [
    "AsyncStore",
    "Committed",
    "Counts",
    "FeedbackOutcome",
    "Filter",
    "Key",
    "ParentLookup",
    "Pruned",
    "Reconciled",
    "Record",
    "Status",
    "Store",
    "VersionRecord",
]
