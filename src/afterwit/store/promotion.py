"""Episodes, the suite of approved turns, and the events of promotion.

Each belongs to the adapter that served the turns. Where a method takes `adapter`, None means: of all.
"""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.errors import TurnNotFound
from afterwit.promotion.episodes import Episode, Event
from afterwit.promotion.suite import SuiteItem
from afterwit.store.database import ALL, marks
from afterwit.store.reading import Reading, Record
from afterwit.store.rows import columns_of, pack_ids, read, unpack_flags, unpack_ids

PROMOTION = "promotion"
"""Held while episodes end: what is decided follows from all that ended before."""

KEPT_PER_STRATUM = 32
"""Items of one stratum that the suite keeps, the newest ones."""

APPROVED_SINCE = 2
"""Later approvals of a stratum that let a lost item retire: people change their minds."""

LINE = """
    WITH RECURSIVE line(seq, id, parent, session, place) AS (
        SELECT seq, id, parent, session, 1 FROM turns WHERE id = ?
        UNION ALL
        SELECT t.seq, t.id, t.parent, t.session, line.place + 1 FROM line
        JOIN turns t ON t.id = line.parent AND t.session = line.session WHERE line.place < ?
    )
    SELECT seq FROM line
"""

LATER = """
    SELECT count(*) FROM suite l
    WHERE l.stratum = suite.stratum AND l.adapter = suite.adapter AND l.since > suite.since
"""

LINEAGE = """
    WITH RECURSIVE line(number) AS (
        SELECT CAST(? AS BIGINT) UNION
        SELECT coalesce(v.restores, v.parent) FROM line JOIN versions v USING (number)
        WHERE coalesce(v.restores, v.parent) IS NOT NULL
    ), lineage(number) AS (
        SELECT number FROM line UNION
        SELECT v.number FROM lineage JOIN versions v ON v.restores = lineage.number
    )
"""
"""A version, those that its weights came from, and rollbacks to any of these."""

CHOICE = "o.session = t.session AND o.prompt_hash = t.prompt_hash AND o.created = t.created AND o.id <> t.id"
"""Whether `o` is another choice of the request that `t` answers."""

BEGAN = "coalesce((SELECT min(t.created) FROM turns t WHERE t.session = e.session), e.at)"

UNENDED = f"""
    SELECT t.seq FROM turns t JOIN contents c USING (seq)
    WHERE t.state = 'OPEN' AND t.kind = 'main' AND t.created < ? AND c.finish = 'tool_calls'
    AND t.id NOT IN (SELECT turn FROM episodes)
    AND NOT EXISTS (SELECT 1 FROM turns o WHERE {CHOICE} AND (o.state <> 'OPEN' OR o.seq < t.seq))
    ORDER BY t.seq LIMIT ?
"""


class Promotion(Reading):
    """Read and written by the gate and the watch."""

    def line(self, turn: str, *, limit: int = 64) -> list[Record]:
        """A turn and those that lead to it in its session, oldest first: at most `limit`, those with content.
        Raises TurnNotFound."""
        rows = self._db.rows(LINE, (turn, limit))
        if not rows:
            raise TurnNotFound(f"there is no turn {turn}")
        return self._records([row["seq"] for row in rows])

    def end_episode(
        self, ended: Episode, items: Sequence[SuiteItem], *, steps: Sequence[str], now: float
    ) -> None:
        """Store how an episode ended, and the items it approved; an episode of the same turn is replaced.

        `steps` are its turns: an episode that seemed to end with an earlier step is deleted.
        """
        here, row = marks(len(steps)), {**columns_of(ended, but=("approved", "began")), "at": now}
        with self._db.transaction():
            self._db.hold(PROMOTION)
            self._db.execute(
                f"DELETE FROM episodes WHERE turn IN ({here}) AND turn <> ?", (*steps, ended.turn)
            )
            self._db.execute(
                f"INSERT INTO episodes ({', '.join(row)}) VALUES ({marks(len(row))})"
                " ON CONFLICT (turn) DO UPDATE SET bad = excluded.bad, complaint = excluded.complaint",
                tuple(row.values()),
            )
            self._db.execute(f"DELETE FROM suite WHERE turn IN ({here})", tuple(steps))
            for item in items:
                packed = {
                    "prompt_ids": pack_ids(item.prompt_ids),
                    "ids": pack_ids(item.ids),
                    "sure": bytes(item.sure),
                }
                own = {"session": ended.session, "adapter": ended.adapter}
                self._db.put("suite", columns_of(item) | packed | own, key="turn")
                self._db.execute(
                    "DELETE FROM suite WHERE turn IN (SELECT turn FROM suite WHERE stratum = ?"
                    " AND adapter = ? ORDER BY since DESC, turn LIMIT ? OFFSET ?)",
                    (item.stratum, ended.adapter, ALL, KEPT_PER_STRATUM),
                )

    def episodes(self, adapter: str | None = None, *, after: int | None = None) -> list[Episode]:
        """The episodes since the last alarm, in the order in which they ended.

        `after`: only of versions that were learned since this one and since that alarm: none that it was
        learned from, no rollback to one of those, and none that the alarm takes back.
        """
        only, named = _only(adapter)

        def of_alarm(column: str) -> str:
            return f"coalesce((SELECT max({column}) FROM events WHERE kind = 'alarm'{only}), -1)"

        sql = f"SELECT * FROM episodes WHERE number > {of_alarm('episode')}{only}"
        values: tuple[str | int, ...] = (*named, *named)
        if after is not None:
            learned = f"version > {of_alarm('version')} AND version NOT IN (SELECT number FROM lineage)"
            sql, values = f"{LINEAGE} {sql} AND {learned}", (after, *values, *named)
        rows = self._db.rows(f"{sql} ORDER BY number", values)
        return [read(Episode, row, approved=(), began=0.0) for row in rows]

    def all_episodes(self, *, limit: int | None = None, newest: bool = True) -> list[Episode]:
        """All episodes, or the newest or the first `limit`, in the order in which they ended."""
        order, most = "DESC" if newest else "ASC", ALL if limit is None else limit
        sql = f"SELECT *, {BEGAN} AS began FROM episodes e ORDER BY number {order} LIMIT ?"
        rows = self._db.rows(sql, (most,))
        return [read(Episode, row, approved=()) for row in (reversed(rows) if newest else rows)]

    def ended_badly(self, *, until: int, newest: int = 24, adapter: str | None = None) -> tuple[int, int]:
        """How many of how many episodes ended badly, of the newest that version `until` and its ancestors
        served.

        A rollback to one of these versions counts as it; what was taken back before `until` was learned does
        not count.
        """
        only, named = _only(adapter)
        bad, of = self._db.rows(
            f"{LINEAGE} SELECT count(bad), count(*) FROM (SELECT bad FROM episodes WHERE version IN"
            f" (SELECT number FROM lineage){only} ORDER BY number DESC LIMIT ?) newest",
            (until, *named, newest),
        )[0]
        return bad, of

    def unended(self, *, before: float, limit: int = 64) -> list[Record]:
        """Main turns from before that time whose tool call nothing followed and that closed no episode.

        Only the first choice of a response, and only if nothing followed any choice.
        """
        return self._records([row["seq"] for row in self._db.rows(UNENDED, (before, limit))])

    def ended_choices(self, turn: str) -> list[str]:
        """The other choices of the turn's response that closed an episode."""
        joined = f"turns t JOIN turns o ON {CHOICE} JOIN episodes e ON e.turn = o.id"
        rows = self._db.rows(f"SELECT o.id FROM {joined} WHERE t.id = ?", (turn,))
        return [row["id"] for row in rows]

    def suite(self, adapter: str | None = None) -> list[SuiteItem]:
        """The approved turns that have not been retired, newest first."""
        only, named = _only(adapter)
        rows = self._db.rows(f"SELECT * FROM suite WHERE TRUE{only} ORDER BY since DESC, turn", named)
        return [
            read(
                SuiteItem,
                row,
                prompt_ids=unpack_ids(row["prompt_ids"]),
                ids=unpack_ids(row["ids"]),
                sure=unpack_flags(row["sure"]),
            )
            for row in rows
        ]

    def retire(self, turns: Sequence[str]) -> int:
        """Take items out of the suite whose stratum was approved twice since; returns how many."""
        with self._db.transaction():
            return self._db.execute(
                f"DELETE FROM suite WHERE turn IN ({marks(len(turns))}) AND ({LATER}) >= ?",
                (*turns, APPROVED_SINCE),
            )

    def withdraw(self, turns: Sequence[str]) -> int:
        """Take items out of the suite because their people now ask for something else; returns how many."""
        with self._db.transaction():
            return self._db.execute(f"DELETE FROM suite WHERE turn IN ({marks(len(turns))})", turns)

    def decided(self, event: Event) -> None:
        with self._db.transaction():
            self._db.hold(PROMOTION)
            newest = self._db.value("SELECT coalesce(max(number), 0) FROM episodes")
            self._db.insert("events", {**columns_of(event), "episode": newest})

    def events(self, adapter: str | None = None) -> list[Event]:
        """All events, oldest first."""
        only, named = _only(adapter)
        rows = self._db.rows(f"SELECT * FROM events WHERE TRUE{only} ORDER BY number", named)
        return [read(Event, row) for row in rows]


def _only(adapter: str | None) -> tuple[str, tuple[str, ...]]:
    """A further condition that a row is of an adapter, and its value."""
    return ("", ()) if adapter is None else (" AND adapter = ?", (adapter,))
