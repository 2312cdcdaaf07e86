"""The store, where the stages meet: turns, next states, verdicts, versions, leases, keys, health.

`Store` is the port, which each kind of database implements. `AsyncStore` puts a thread before one.
"""

from afterwit.store.asynchronous import AsyncStore
from afterwit.store.lines import EndedTurn, Outcome, SessionLine, SourceLine, TurnLine
from afterwit.store.port import ParentLookup, Store
from afterwit.store.records import (
    Committed,
    Counts,
    EndedEpisode,
    Excluded,
    FeedbackOutcome,
    Filter,
    ForgetOrder,
    Key,
    LearnedTurn,
    Pause,
    Pruned,
    Reconciled,
    Record,
    ReviewOutcome,
    Status,
    VersionRecord,
)

__all__ = [
    "AsyncStore",
    "Committed",
    "Counts",
    "EndedEpisode",
    "EndedTurn",
    "Excluded",
    "FeedbackOutcome",
    "Filter",
    "ForgetOrder",
    "Key",
    "LearnedTurn",
    "Outcome",
    "ParentLookup",
    "Pause",
    "Pruned",
    "Reconciled",
    "Record",
    "ReviewOutcome",
    "SessionLine",
    "SourceLine",
    "Status",
    "Store",
    "TurnLine",
    "VersionRecord",
]
