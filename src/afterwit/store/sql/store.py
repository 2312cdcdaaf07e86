"""The store over a database that speaks SQL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from afterwit.core.errors import StoreError
from afterwit.store.port import Copying
from afterwit.store.sql.copying import copy_rows
from afterwit.store.sql.gateway.lookup import SqlParentLookup
from afterwit.store.sql.gateway.recording import SqlRecording
from afterwit.store.sql.orders.control import SqlControl
from afterwit.store.sql.orders.forgetting import SqlForgetting
from afterwit.store.sql.orders.review import SqlReview
from afterwit.store.sql.queues.learner_queue import SqlLearnerQueue
from afterwit.store.sql.queues.leases import SqlLeases
from afterwit.store.sql.reading.browsing import SqlBrowsing
from afterwit.store.sql.reading.reading import SqlReading
from afterwit.store.sql.reading.sources import SqlSources
from afterwit.store.sql.upkeep.keys import SqlKeys
from afterwit.store.sql.upkeep.retention import SqlRetention
from afterwit.store.sql.upkeep.statuses import SqlStatuses
from afterwit.store.sql.versions.lineage import SqlLineage
from afterwit.store.sql.versions.promotion import SqlPromotion


class SqlStore(
    SqlRecording,
    SqlParentLookup,
    SqlLeases,
    SqlLearnerQueue,
    SqlLineage,
    SqlPromotion,
    SqlControl,
    SqlReview,
    SqlSources,
    SqlReading,
    SqlBrowsing,
    SqlRetention,
    SqlForgetting,
    SqlStatuses,
    SqlKeys,
):
    """Implements the port `Store`, all but `copy_to`, which is each database's own."""

    def transaction(self) -> AbstractContextManager[None]:
        return self._database.transaction()

    def together(self) -> AbstractContextManager[None]:
        return self._database.together()

    def leading(self) -> AbstractContextManager[None]:
        return self._database.leading()

    def listening(self, heard: Callable[[], object]) -> AbstractContextManager[None]:
        return self._database.listening(heard)

    def copy_into(self, other: Copying) -> int:
        if not isinstance(other, SqlStore):
            raise StoreError(f"a store of the kind {type(other).__name__} takes no copy")
        return copy_rows(self._database, other._database)

    def close(self) -> None:
        self._database.close()
