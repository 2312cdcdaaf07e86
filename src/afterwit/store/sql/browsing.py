"""The port's `Browsing` in SQL."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import orjson

from afterwit.judging.checks import Judged
from afterwit.lifecycle import Reason, State
from afterwit.store.lines import EndedTurn, Outcome, SessionLine, SourceLine, TurnLine
from afterwit.store.records import Filter, VersionRecord
from afterwit.store.sql.database import ALL, Component, Row, marks
from afterwit.store.sql.growing import whole_values
from afterwit.store.sql.lineage import read_version
from afterwit.store.sql.reading import clauses_of
from afterwit.store.sql.rows import read_message
from afterwit.turn import Kind, source_of
from afterwit.verdict import Question, Source

LINE = (
    "SELECT t.seq, t.id, t.session, t.scope, t.kind, t.created, t.imported, t.state, t.reason, t.error,"
    " c.message, v.reward, v.hints FROM turns t JOIN contents c USING (seq) LEFT JOIN verdicts v USING (seq)"
)


SESSIONS = """
    SELECT t.seq, t.session, t.scope, t.created FROM turns t
    WHERE t.seq < ? AND t.kind = 'main' AND NOT EXISTS (
        SELECT 1 FROM turns n WHERE n.session = t.session AND n.kind = 'main' AND n.seq > t.seq
    )
    ORDER BY t.seq DESC LIMIT ?
"""
"""A session's line is its newest main turn: the index of sessions tells whether there is a newer one."""


COUNTED = """
    SELECT t.session, min(t.seq) AS first, min(t.created) AS begun, count(*) AS turns,
        count(*) FILTER (WHERE v.reward = 1) AS good, count(*) FILTER (WHERE v.reward = -1) AS bad,
        count(*) FILTER (WHERE v.hinted = 1) AS hinted, count(*) FILTER (WHERE t.state = 'TRAINED') AS trained
    FROM turns t LEFT JOIN verdicts v USING (seq)
    WHERE t.kind = 'main' AND t.session IN ({})
    GROUP BY t.session
"""


SOURCES = """
    SELECT t.scope, count(*) AS turns, count(*) FILTER (WHERE v.reward = 1) AS good,
        count(*) FILTER (WHERE v.reward = -1) AS bad, count(*) FILTER (WHERE v.hinted = 1) AS hinted,
        count(*) FILTER (WHERE t.state = 'JUDGED') AS waiting,
        count(*) FILTER (WHERE t.state = 'TRAINED') AS trained
    FROM (SELECT * FROM turns ORDER BY seq DESC LIMIT ?) t LEFT JOIN verdicts v USING (seq)
    GROUP BY t.scope
"""


COUNTS = ("turns", "good", "bad", "hinted", "waiting", "trained")


OUTCOMES = (
    "SELECT v.reward, v.hinted, v.at, t.oldest_version FROM verdicts v JOIN turns t USING (seq)"
    " ORDER BY v.seq {} LIMIT ?"
)


JUDGED = """
    SELECT v.seq, t.id, t.session, v.reward, v.source, v.hinted,
        (SELECT e.bad IS NULL AND e.complaint = 0 FROM episodes e WHERE e.turn = t.id) AS ended_well,
        (SELECT f.reward FROM feedback f WHERE f.seq = v.seq ORDER BY f.number DESC LIMIT 1) AS feedback
    FROM verdicts v JOIN turns t USING (seq) ORDER BY v.seq DESC LIMIT ?
"""


ENDED = """
    SELECT t.seq, t.id, t.session, t.kind, t.state, t.reason, t.moved_at, t.created, t.recorded,
        t.oldest_version, n.at AS answered, v.at AS judged, v.reward, v.hinted,
        m.number AS version, m.created AS update_began, m.committed_at, m.published_at
    FROM turns t LEFT JOIN next_states n USING (seq) LEFT JOIN verdicts v USING (seq)
        LEFT JOIN versions m ON m.number =
            (SELECT max(r.version) FROM trained r WHERE r.turn = t.id AND r.replayed = 0)
    WHERE t.state IN ('TRAINED', 'SKIPPED') AND (t.moved_at, t.seq) > (?, ?) AND t.moved_at <= ?
        AND t.imported = 0
    ORDER BY t.moved_at, t.seq LIMIT ?
"""


VERSIONS = """
    SELECT v.*, (SELECT count(*) FROM trained t WHERE t.version = v.number) AS used,
        (SELECT count(*) FROM trained t WHERE t.version = v.number AND t.replayed = 1) AS replayed
    FROM versions v WHERE v.number < ? ORDER BY v.number DESC LIMIT ?
"""


class SqlBrowsing(Component):
    def turn_lines(
        self, where: Filter | None = None, *, before: int | None = None, limit: int = 50
    ) -> list[TurnLine]:
        clauses, values = clauses_of(where or Filter())
        rows = self._database.rows(
            f"{LINE} WHERE t.seq < ?{clauses} ORDER BY t.seq DESC LIMIT ?",
            (_before(before), *values, limit),
        )
        trained = self._trained_in([row["id"] for row in rows])
        return [_turn_line(row, trained[row["id"]]) for row in rows]

    def _trained_in(self, turns: Sequence[str]) -> defaultdict[str, list[int]]:
        found: defaultdict[str, list[int]] = defaultdict(list)
        for row in self._database.rows(
            f"SELECT turn, version FROM trained WHERE replayed = 0 AND turn IN ({marks(len(turns))})"
            " ORDER BY version",
            tuple(turns),
        ):
            found[row["turn"]].append(row["version"])
        return found

    def session_lines(self, *, before: int | None = None, limit: int = 30) -> list[SessionLine]:
        newest = self._database.rows(SESSIONS, (_before(before), limit))
        names = tuple(row["session"] for row in newest)
        counted = {
            row["session"]: row for row in self._database.rows(COUNTED.format(marks(len(names))), names)
        }
        asked = self._asked([row["first"] for row in counted.values()])
        return [_session_line(row, counted[row["session"]], asked) for row in newest]

    def _asked(self, seqs: Sequence[int]) -> dict[int, str]:
        """What a person said last before each of these turns; those without content are left out."""
        found = {}
        for seq, whole in whole_values(self._database, seqs).items():
            messages = orjson.loads(whole["conversation"])["messages"]
            said = (message["content"] for message in reversed(messages) if message["role"] == "user")
            found[seq] = next(said, None) or ""
        return found

    def source_lines(self, *, newest: int) -> list[SourceLine]:
        counted: dict[str, Counter[str]] = {}
        for row in self._database.rows(SOURCES, (newest,)):
            counted.setdefault(source_of(row["scope"]), Counter()).update(
                {name: row[name] for name in COUNTS}
            )
        found = [SourceLine(source=source, **counts) for source, counts in counted.items()]
        return sorted(found, key=lambda line: (-line.turns, line.source))

    def outcomes(self, *, limit: int, newest: bool = True) -> list[Outcome]:
        rows = self._database.rows(OUTCOMES.format("DESC" if newest else "ASC"), (limit,))
        found = [
            Outcome(
                reward=row["reward"],
                hinted=bool(row["hinted"]),
                version=row["oldest_version"],
                at=row["at"],
            )
            for row in rows
        ]
        return found[::-1] if newest else found

    def judged_turns(self, *, limit: int) -> list[Judged]:
        rows = self._database.rows(JUDGED, (limit,))
        votes = self._votes([row["seq"] for row in rows])
        return [_judged(row, votes[row["seq"]]) for row in reversed(rows)]

    def _votes(self, seqs: Sequence[int]) -> defaultdict[int, list[tuple[Question, int | None]]]:
        found: defaultdict[int, list[tuple[Question, int | None]]] = defaultdict(list)
        for row in self._database.rows(
            "SELECT seq, question, value FROM votes WHERE seq >= ? ORDER BY seq, place",
            (min(seqs, default=ALL),),
        ):
            found[row["seq"]].append((Question(row["question"]), row["value"]))
        return found

    def ended_turns(self, *, after: tuple[float, int], until: float, limit: int) -> list[EndedTurn]:
        return [_ended(row) for row in self._database.rows(ENDED, (*after, until, limit))]

    def newest_versions(self, *, before: int | None = None, limit: int = 50) -> list[VersionRecord]:
        return [read_version(row) for row in self._database.rows(VERSIONS, (_before(before), limit))]


def _judged(row: Row, votes: Sequence[tuple[Question, int | None]]) -> Judged:
    return Judged(
        seq=row["seq"],
        turn=row["id"],
        session=row["session"],
        reward=row["reward"],
        source=Source(row["source"]),
        hinted=bool(row["hinted"]),
        feedback=row["feedback"],
        ended_well=None if row["ended_well"] is None else bool(row["ended_well"]),
        votes=tuple(votes),
    )


def _ended(row: Row) -> EndedTurn:
    return EndedTurn(
        seq=row["seq"],
        turn=row["id"],
        session=row["session"],
        kind=Kind(row["kind"]),
        state=State(row["state"]),
        reason=None if row["reason"] is None else Reason(row["reason"]),
        ended=row["moved_at"],
        asked=row["created"],
        recorded=row["recorded"],
        answered=row["answered"],
        judged=row["judged"],
        reward=row["reward"],
        hinted=bool(row["hinted"]),
        oldest_version=row["oldest_version"],
        version=row["version"],
        update_began=row["update_began"],
        committed=row["committed_at"],
        published=row["published_at"],
    )


def _before(before: int | None) -> int:
    return ALL if before is None else before


def _turn_line(row: Row, trained_in: Sequence[int]) -> TurnLine:
    return TurnLine(
        seq=row["seq"],
        turn=row["id"],
        session=row["session"],
        scope=row["scope"],
        kind=Kind(row["kind"]),
        created=row["created"],
        imported=bool(row["imported"]),
        state=State(row["state"]),
        reason=None if row["reason"] is None else Reason(row["reason"]),
        error=row["error"],
        message=read_message(row["message"]),
        reward=row["reward"],
        hints=() if row["hints"] is None else tuple(orjson.loads(row["hints"])),
        trained_in=tuple(trained_in),
    )


def _session_line(newest: Row, counted: Row, asked: dict[int, str]) -> SessionLine:
    return SessionLine(
        seq=newest["seq"],
        session=newest["session"],
        scope=newest["scope"],
        begun=counted["begun"],
        newest=newest["created"],
        turns=counted["turns"],
        good=counted["good"],
        bad=counted["bad"],
        hinted=counted["hinted"],
        trained=counted["trained"],
        asked=asked.get(counted["first"]),
    )
