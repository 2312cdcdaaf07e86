"""The store: the bus between the stages, in one SQLite file."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from afterwit.store.sqlite.learner_queue import LearnerQueue
from afterwit.store.sqlite.lineage import Lineage
from afterwit.store.sqlite.lookup import ParentLookup
from afterwit.store.sqlite.opening import open_database
from afterwit.store.sqlite.reading import Reading
from afterwit.store.sqlite.recording import Recording
from afterwit.store.sqlite.retention import Retention
from afterwit.store.sqlite.status import Keys, Statuses


class Store(Recording, ParentLookup, Lineage, LearnerQueue, Reading, Retention, Statuses, Keys):
    """Every method is one transaction, durable on return. For one thread; processes may open one each.

    Raises StoreError in plain words where the disk, another process or the request stands in the way; nothing
    of the failed transaction stays then.
    """

    @classmethod
    def open(cls, path: Path, *, fingerprint: str | None, synchronous: str = "NORMAL") -> Self:
        """Open or create the store. `fingerprint` binds it to tokenizer and base weights; None: any store.

        `synchronous`: "NORMAL" survives a killed process, "FULL" a power loss too. Raises StoreMismatch for a
        newer schema, another fingerprint or a foreign file, which stay untouched.
        """
        return cls(open_database(path, fingerprint=fingerprint, synchronous=synchronous))

    @property
    def path(self) -> Path:
        return self._database.path

    def transaction(self) -> AbstractContextManager[None]:
        """Several methods as one: all or nothing."""
        return self._database.transaction()

    def savepoint(self) -> AbstractContextManager[None]:
        """Inside a transaction: a part that may fail alone."""
        return self._database.savepoint()

    def close(self) -> None:
        self._database.close()
