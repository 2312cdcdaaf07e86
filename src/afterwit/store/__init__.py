"""Layer 2: the bus. SQLite in WAL mode: turns, next states, verdicts, versions, leases, keys, health.

`Store` is the whole of it; `AsyncStore` puts a writer thread before one. `schema` declares every column once.
"""

from afterwit.store.asynchronous import AsyncStore
from afterwit.store.rows import (
    Answer,
    Committed,
    Counts,
    FeedbackOutcome,
    Filter,
    Key,
    Pruned,
    Reconciled,
    Record,
    Status,
    VersionRow,
)
from afterwit.store.sqlite.store import Store

__all__ = [
    "Answer",
    "AsyncStore",
    "Committed",
    "Counts",
    "FeedbackOutcome",
    "Filter",
    "Key",
    "Pruned",
    "Reconciled",
    "Record",
    "Status",
    "Store",
    "VersionRow",
]
