"""The store in one SQLite file."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from afterwit.store.sqlite.browsing import SqliteBrowsing
from afterwit.store.sqlite.control import SqliteControl
from afterwit.store.sqlite.copying import SqliteCopying
from afterwit.store.sqlite.forgetting import SqliteForgetting
from afterwit.store.sqlite.keys import SqliteKeys
from afterwit.store.sqlite.learner_queue import SqliteLearnerQueue
from afterwit.store.sqlite.leases import SqliteLeases
from afterwit.store.sqlite.lineage import SqliteLineage
from afterwit.store.sqlite.lookup import SqliteParentLookup
from afterwit.store.sqlite.opening import SURVIVES_A_KILL, open_database
from afterwit.store.sqlite.promotion import SqlitePromotion
from afterwit.store.sqlite.reading import SqliteReading
from afterwit.store.sqlite.recent import SqliteRecent
from afterwit.store.sqlite.recording import SqliteRecording
from afterwit.store.sqlite.retention import SqliteRetention
from afterwit.store.sqlite.review import SqliteReview
from afterwit.store.sqlite.sources import SqliteSources
from afterwit.store.sqlite.status import SqliteStatuses


class SqliteStore(
    SqliteRecording,
    SqliteParentLookup,
    SqliteRecent,
    SqliteLeases,
    SqliteLearnerQueue,
    SqliteLineage,
    SqlitePromotion,
    SqliteControl,
    SqliteReview,
    SqliteSources,
    SqliteReading,
    SqliteBrowsing,
    SqliteRetention,
    SqliteForgetting,
    SqliteCopying,
    SqliteStatuses,
    SqliteKeys,
):
    """Implements the port `Store` over one file in WAL mode. Processes may open it side by side."""

    @classmethod
    def open(cls, path: Path, *, fingerprint: str | None, synchronous: str = SURVIVES_A_KILL) -> Self:
        """Open or create the store. `fingerprint` binds it to tokenizer and base weights; None: any store.

        `synchronous`: what was written survives a killed process with "NORMAL", and a power loss too with
        "FULL". Raises StoreMismatch for a newer schema, another fingerprint or a foreign file, which stay
        untouched.
        """
        return cls(open_database(path, fingerprint=fingerprint, synchronous=synchronous))

    def transaction(self) -> AbstractContextManager[None]:
        return self._database.transaction()

    def savepoint(self) -> AbstractContextManager[None]:
        return self._database.savepoint()

    def close(self) -> None:
        self._database.close()
