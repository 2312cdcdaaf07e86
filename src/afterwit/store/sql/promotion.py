"""The port's `Promotion` in SQL."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.errors import TurnNotFound
from afterwit.promotion.episodes import BadEnd, Episode
from afterwit.promotion.events import Event, EventKind
from afterwit.promotion.items import Item
from afterwit.store.records import EndedEpisode, Record
from afterwit.store.sql.database import ALL, Component, Row, marks
from afterwit.store.sql.reading import records_by_seq
from afterwit.store.sql.rows import pack_flags, pack_ids, unpack_flags, unpack_ids

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
"""A version, those that its weights came from, and rollbacks to one of them."""


ENDED_BADLY = """
    SELECT count(bad), count(*) FROM (
        SELECT bad FROM episodes WHERE version IN (SELECT number FROM lineage){only}
        ORDER BY number DESC LIMIT ?
    ) newest
"""


CHOICE = "o.session = t.session AND o.prompt_hash = t.prompt_hash AND o.created = t.created AND o.id <> t.id"
"""That `o` is another choice of the request that `t` answers."""


UNENDED = f"""
    SELECT t.seq FROM turns t JOIN contents c USING (seq)
    WHERE t.state = 'OPEN' AND t.kind = 'main' AND t.created < ? AND c.finish = 'tool_calls'
    AND t.id NOT IN (SELECT turn FROM episodes)
    AND NOT EXISTS (SELECT 1 FROM turns o WHERE {CHOICE} AND (o.state <> 'OPEN' OR o.seq < t.seq))
    ORDER BY t.seq LIMIT ?
"""


CHOICES = f"SELECT o.id FROM turns t JOIN turns o ON {CHOICE} JOIN episodes e ON e.turn = o.id WHERE t.id = ?"


class SqlPromotion(Component):
    def line(self, turn: str, *, limit: int = 64) -> list[Record]:
        rows = self._database.rows(LINE, (turn, limit))
        if not rows:
            raise TurnNotFound(f"there is no turn {turn}")
        return records_by_seq(self._database, [row["seq"] for row in rows])

    def end_episode(self, ended: Episode, items: Sequence[Item], *, steps: Sequence[str], now: float) -> None:
        with self._database.transaction():
            self._database.hold(PROMOTION)
            self._database.execute(
                f"DELETE FROM episodes WHERE turn IN ({marks(len(steps))}) AND turn <> ?",
                (*steps, ended.turn),
            )
            self._database.execute(
                "INSERT INTO episodes (turn, session, source, version, bad, complaint, kind, at, adapter)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (turn) DO UPDATE SET bad = excluded.bad, complaint = excluded.complaint",
                (
                    ended.turn,
                    ended.session,
                    ended.source,
                    ended.version,
                    ended.bad,
                    ended.complaint,
                    ended.kind,
                    now,
                    ended.adapter,
                ),
            )
            self._database.execute(f"DELETE FROM suite WHERE turn IN ({marks(len(steps))})", tuple(steps))
            for item in items:
                self._add(item, ended)

    def _add(self, item: Item, ended: Episode) -> None:
        row = {
            "turn": item.turn,
            "session": ended.session,
            "stratum": item.stratum,
            "source": item.source,
            "version": item.version,
            "since": item.since,
            "prompt_ids": pack_ids(item.prompt_ids),
            "ids": pack_ids(item.ids),
            "sure": pack_flags(item.sure),
            "adapter": ended.adapter,
        }
        self._database.put("suite", row, key="turn")
        self._database.execute(
            "DELETE FROM suite WHERE turn IN (SELECT turn FROM suite WHERE stratum = ? AND adapter = ?"
            " ORDER BY since DESC, turn LIMIT ? OFFSET ?)",
            (item.stratum, ended.adapter, ALL, KEPT_PER_STRATUM),
        )

    def episodes(self, adapter: str | None = None, *, after: int | None = None) -> list[EndedEpisode]:
        only, named = _only(adapter)
        sql = f"SELECT * FROM episodes WHERE number > {_of_alarm('episode', only)}{only}"
        arguments: tuple[str | int, ...] = (*named, *named)
        if after is not None:
            learned = (
                f"version > {_of_alarm('version', only)} AND version NOT IN (SELECT number FROM lineage)"
            )
            sql, arguments = f"{LINEAGE} {sql} AND {learned}", (after, *arguments, *named)
        return [_episode(row) for row in self._database.rows(f"{sql} ORDER BY number", arguments)]

    def all_episodes(self, *, limit: int | None = None, newest: bool = True) -> list[EndedEpisode]:
        order = "DESC" if newest else "ASC"
        most = (ALL if limit is None else limit,)
        rows = self._database.rows(f"SELECT * FROM episodes ORDER BY number {order} LIMIT ?", most)
        found = [_episode(row) for row in rows]
        return found[::-1] if newest else found

    def ended_badly(self, *, until: int, newest: int = 24, adapter: str | None = None) -> tuple[int, int]:
        only, named = _only(adapter)
        bad, of = self._database.rows(LINEAGE + ENDED_BADLY.format(only=only), (until, *named, newest))[0]
        return bad, of

    def unended(self, *, before: float, limit: int = 64) -> list[Record]:
        rows = self._database.rows(UNENDED, (before, limit))
        return records_by_seq(self._database, [row["seq"] for row in rows])

    def ended_choices(self, turn: str) -> list[str]:
        return [row["id"] for row in self._database.rows(CHOICES, (turn,))]

    def suite(self, adapter: str | None = None) -> list[Item]:
        only, named = _only(adapter)
        rows = self._database.rows(f"SELECT * FROM suite WHERE TRUE{only} ORDER BY since DESC, turn", named)
        return [_item(row) for row in rows]

    def retire(self, turns: Sequence[str]) -> int:
        with self._database.transaction():
            return self._database.execute(
                f"DELETE FROM suite WHERE turn IN ({marks(len(turns))}) AND ({LATER}) >= ?",
                (*turns, APPROVED_SINCE),
            )

    def withdraw(self, turns: Sequence[str]) -> int:
        with self._database.transaction():
            return self._database.execute(f"DELETE FROM suite WHERE turn IN ({marks(len(turns))})", turns)

    def decided(self, event: Event) -> None:
        with self._database.transaction():
            self._database.hold(PROMOTION)
            (newest,) = self._database.rows("SELECT coalesce(max(number), 0) FROM episodes")[0]
            row = {
                "kind": event.kind,
                "at": event.at,
                "version": event.version,
                "evidence": event.evidence,
                "words": event.words,
                "episode": newest,
                "adapter": event.adapter,
            }
            self._database.insert("events", row)

    def events(self, adapter: str | None = None) -> list[Event]:
        only, named = _only(adapter)
        rows = self._database.rows(f"SELECT * FROM events WHERE TRUE{only} ORDER BY number", named)
        return [_event(row) for row in rows]


def _only(adapter: str | None) -> tuple[str, tuple[str, ...]]:
    """The condition that a row is of an adapter, behind others, and its value; None: any will do."""
    return ("", ()) if adapter is None else (" AND adapter = ?", (adapter,))


def _of_alarm(column: str, only: str) -> str:
    """The column of the newest alarm; -1 without one."""
    return f"coalesce((SELECT max({column}) FROM events WHERE kind = 'alarm'{only}), -1)"


def _episode(row: Row) -> EndedEpisode:
    return EndedEpisode(
        turn=row["turn"],
        session=row["session"],
        source=row["source"],
        version=row["version"],
        bad=None if row["bad"] is None else BadEnd(row["bad"]),
        complaint=bool(row["complaint"]),
        kind=row["kind"],
        at=row["at"],
        adapter=row["adapter"],
    )


def _item(row: Row) -> Item:
    return Item(
        turn=row["turn"],
        stratum=row["stratum"],
        source=row["source"],
        version=row["version"],
        since=row["since"],
        prompt_ids=unpack_ids(row["prompt_ids"]),
        ids=unpack_ids(row["ids"]),
        sure=unpack_flags(row["sure"]),
    )


def _event(row: Row) -> Event:
    return Event(
        kind=EventKind(row["kind"]),
        at=row["at"],
        version=row["version"],
        evidence=row["evidence"],
        words=row["words"],
        adapter=row["adapter"],
    )
