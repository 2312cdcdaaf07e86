"""The port's `LearnerQueue` in SQL."""

from __future__ import annotations

from afterwit.core.judged_turn import Waiting
from afterwit.core.turn import source_of
from afterwit.store.sql.component import Component
from afterwit.store.sql.rows.codec import ACCEPTED, read_flags

WAITING = """
    SELECT t.seq, id, scope, session, moved_at, oldest_version, flags, review, rl, adapter
    FROM turns t LEFT JOIN verdicts v USING (seq)
    WHERE state = 'JUDGED' AND reason IS NULL AND (owner IS NULL OR lease_until <= ?) AND retry_at <= ?
    AND session NOT IN (SELECT session FROM excluded)
"""
NEWEST_WAITS_FOR_NOTHING = """
    SELECT state <> 'OPEN' AND answered_by IS NULL FROM turns LEFT JOIN next_states USING (seq)
    WHERE session = w.session AND kind = 'main' ORDER BY seq DESC LIMIT 1
"""
"""`answered_by` is known before the turn that it names is stored: until then the session has not ended."""
BEFORE_THE_JUDGE = "SELECT 1 FROM turns WHERE session = w.session AND state || '' = 'ANSWERED'"
"""The empty string makes SQLite search the session, not all turns that wait for the judge."""
ENDED = f"""
    SELECT DISTINCT session FROM waiting w
    WHERE ({NEWEST_WAITS_FOR_NOTHING}) AND NOT EXISTS ({BEFORE_THE_JUDGE})
"""


class SqlLearnerQueue(Component):
    def in_update(self, *, now: float) -> int:
        row = self._database.rows(
            "SELECT count(*) AS held FROM turns WHERE state = 'JUDGED' AND reason IS NULL"
            " AND owner IS NOT NULL AND lease_until > ?",
            (now,),
        )[0]
        return int(row["held"])

    def waiting(self, *, now: float) -> list[Waiting]:
        rows = self._database.rows(
            f"WITH waiting AS MATERIALIZED ({WAITING}), ended AS MATERIALIZED ({ENDED})"
            " SELECT *, session IN (SELECT session FROM ended) AS ended FROM waiting ORDER BY seq",
            (now, now),
        )
        return [
            Waiting(
                seq=row["seq"],
                turn=row["id"],
                session=row["session"],
                since=row["moved_at"],
                oldest_version=row["oldest_version"],
                ended=bool(row["ended"]),
                source=source_of(row["scope"]),
                flags=read_flags(row["flags"]),
                accepted=row["review"] == ACCEPTED,
                rewarded=bool(row["rl"]),
                adapter=row["adapter"],
            )
            for row in rows
        ]
