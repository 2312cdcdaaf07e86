"""The store's port: what every database behind Afterwit must do. One protocol for each kind of use."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from afterwit.store.port.browsing import Browsing
from afterwit.store.port.control import Control
from afterwit.store.port.copying import Copying
from afterwit.store.port.forgetting import Forgetting
from afterwit.store.port.leases import WAITS_IN, LearnerQueue, Leases, Stage
from afterwit.store.port.lineage import Lineage
from afterwit.store.port.operation import Keys, Statuses
from afterwit.store.port.promotion import Promotion
from afterwit.store.port.reading import Reading
from afterwit.store.port.recording import ParentLookup, Recording
from afterwit.store.port.retention import Retention
from afterwit.store.port.sources import Sources

__all__ = [
    "WAITS_IN",
    "Browsing",
    "Control",
    "Copying",
    "Forgetting",
    "Keys",
    "LearnerQueue",
    "Leases",
    "Lineage",
    "ParentLookup",
    "Promotion",
    "Reading",
    "Recording",
    "Retention",
    "Sources",
    "Stage",
    "Statuses",
    "Store",
]


class Store(
    Recording,
    ParentLookup,
    Leases,
    LearnerQueue,
    Lineage,
    Promotion,
    Control,
    Sources,
    Forgetting,
    Reading,
    Browsing,
    Retention,
    Copying,
    Statuses,
    Keys,
    Protocol,
):
    """The whole store. Each method is one transaction: all of it is stored, or nothing.

    What a method wrote survives a killed process as soon as it returns; whether it survives a power loss is
    the database's own setting. A store is used by one thread at a time; other threads and processes open
    their own.

    Raises StoreUnavailable if the database cannot take or give anything now, and StoreError if it refuses
    what was asked. In both cases nothing of the call is stored.
    """

    def transaction(self) -> AbstractContextManager[None]:
        """Several calls as one: all of them are stored, or none. An inner transaction joins the outer one."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """A transaction of several callers' calls. One that would wait for another process, or must be alone,
        raises StoreConflict instead: then nothing of any call is stored, and each can be made by itself."""
        ...

    def close(self) -> None:
        """Free what the store holds. Nothing may be called afterwards."""
        ...
