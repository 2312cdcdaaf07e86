"""The port's `LearnerQueue` over SQLite."""

from __future__ import annotations

from afterwit.core.sample import Waiting
from afterwit.store.sqlite.component import Component

WAITING = """
    SELECT seq, session, moved_at, oldest_version FROM turns
    WHERE state = 'JUDGED' AND reason IS NULL AND (owner IS NULL OR lease_until <= :now) AND retry_at <= :now
    ORDER BY seq LIMIT :limit
"""
NEWEST_WAITS_FOR_NOTHING = """
    SELECT state <> 'OPEN' AND answered_by IS NULL FROM turns LEFT JOIN next_states USING (seq)
    WHERE session = w.session AND kind = 'main' ORDER BY seq DESC LIMIT 1
"""
"""A request that answers a turn is known by its id before its own turn is stored: until then that session has
not ended."""
BEFORE_THE_JUDGE = "SELECT 1 FROM turns WHERE session = w.session AND +state = 'ANSWERED'"
"""The plus has SQLite look through the session, not through all that the judge has."""
ENDED = f"""
    SELECT DISTINCT session FROM waiting w
    WHERE ({NEWEST_WAITS_FOR_NOTHING}) AND NOT EXISTS ({BEFORE_THE_JUDGE})
"""


class SqliteLearnerQueue(Component):
    def waiting(self, *, now: float, limit: int | None = None) -> list[Waiting]:
        rows = self._database.rows(
            f"WITH waiting AS MATERIALIZED ({WAITING}), ended AS MATERIALIZED ({ENDED}) SELECT seq, session,"
            " moved_at, oldest_version, session IN ended AS ended FROM waiting ORDER BY seq",
            {"now": now, "limit": -1 if limit is None else limit},
        )
        return [
            Waiting(row["seq"], row["session"], row["moved_at"], row["oldest_version"], bool(row["ended"]))
            for row in rows
        ]
