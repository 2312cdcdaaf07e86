"""The store, where the stages meet. `AsyncStore` runs one in a thread of its own, for an event loop."""

from afterwit.store.recording import ParentLookup
from afterwit.store.records import (
    Counts,
    Excluded,
    Filter,
    ForgetOrder,
    Key,
    LearnedTurn,
    Pause,
    Reconciled,
    Record,
    ReviewOutcome,
    SessionLine,
    SourceLine,
    Status,
    TurnLine,
    VersionRecord,
    summary,
    whole,
)
from afterwit.store.store import AsyncStore, Store

__all__ = [
    "AsyncStore",
    "Counts",
    "Excluded",
    "Filter",
    "ForgetOrder",
    "Key",
    "LearnedTurn",
    "ParentLookup",
    "Pause",
    "Reconciled",
    "Record",
    "ReviewOutcome",
    "SessionLine",
    "SourceLine",
    "Status",
    "Store",
    "TurnLine",
    "VersionRecord",
    "summary",
    "whole",
]
