"""Lists without conversations, for the page and the trackers. Read-only.

A page of a list goes on after the last line of the one before: `before` is its `seq`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import orjson

from afterwit.judging.checks import Judged
from afterwit.store.database import ALL, Part, marks
from afterwit.store.prefix_delta import whole_values
from afterwit.store.reading import clauses_of
from afterwit.store.records import Filter, SessionLine, SourceLine, TurnLine
from afterwit.store.rows import read, unpack_message
from afterwit.turn import source_of
from afterwit.verdict import Question

TURNS = """
    SELECT t.seq, t.id AS turn, t.session, t.scope, t.kind, t.created, t.imported, t.state, t.reason, t.error,
        c.message, v.reward, v.hints
    FROM turns t JOIN contents c USING (seq) LEFT JOIN verdicts v USING (seq)
"""

SESSIONS = """
    SELECT t.seq, t.session, t.scope, t.created AS newest FROM turns t
    WHERE t.seq < ? AND t.kind = 'main' AND NOT EXISTS (
        SELECT 1 FROM turns n WHERE n.session = t.session AND n.kind = 'main' AND n.seq > t.seq
    )
    ORDER BY t.seq DESC LIMIT ?
"""
"""Each session's newest main turn, by the index of sessions."""

REWARDS = """
    count(*) AS turns, count(*) FILTER (WHERE v.reward = 1) AS good,
    count(*) FILTER (WHERE v.reward = -1) AS bad, count(*) FILTER (WHERE v.hinted = 1) AS hinted,
    count(*) FILTER (WHERE t.state = 'JUDGED') AS waiting,
    count(*) FILTER (WHERE t.state = 'TRAINED') AS trained
"""

SESSION_COUNTS = f"""
    SELECT t.session, min(t.seq) AS first, min(t.created) AS begun, {REWARDS}
    FROM turns t LEFT JOIN verdicts v USING (seq)
    WHERE t.kind = 'main' AND t.session IN ({{}})
    GROUP BY t.session
"""

SOURCES = f"""
    SELECT t.scope, {REWARDS}
    FROM (SELECT * FROM turns ORDER BY seq DESC LIMIT ?) t LEFT JOIN verdicts v USING (seq)
    GROUP BY t.scope
"""

JUDGED = """
    SELECT v.seq, t.id AS turn, t.session, v.reward, v.source, v.hinted, v.at, t.oldest_version AS version,
        (SELECT e.bad IS NULL AND e.complaint = 0 FROM episodes e WHERE e.turn = t.id) AS ended_well,
        (SELECT f.reward FROM feedback f WHERE f.seq = v.seq ORDER BY f.number DESC LIMIT 1) AS feedback
    FROM verdicts v JOIN turns t USING (seq) ORDER BY v.seq DESC LIMIT ?
"""


class Browsing(Part):
    """Lists for people."""

    def turn_lines(
        self, where: Filter | None = None, *, before: int | None = None, limit: int = 50
    ) -> list[TurnLine]:
        """Turns with content, the newest first."""
        clauses, values = clauses_of(where or Filter())
        rows = self._database.rows(
            f"{TURNS} WHERE t.seq < ?{clauses} ORDER BY t.seq DESC LIMIT ?", (_before(before), *values, limit)
        )
        trained: defaultdict[str, list[int]] = defaultdict(list)
        for row in self._database.rows(
            f"SELECT turn, version FROM trained WHERE replayed = 0 AND turn IN ({marks(len(rows))})"
            " ORDER BY version",
            tuple(row["turn"] for row in rows),
        ):
            trained[row["turn"]].append(row["version"])
        return [
            read(
                TurnLine,
                row,
                message=unpack_message(row["message"]),
                hints=tuple(orjson.loads(row["hints"] or b"[]")),
                trained_in=tuple(trained[row["turn"]]),
            )
            for row in rows
        ]

    def session_lines(self, *, before: int | None = None, limit: int = 30) -> list[SessionLine]:
        """Sessions by their newest main turn, the newest first."""
        newest = self._database.rows(SESSIONS, (_before(before), limit))
        names = tuple(row["session"] for row in newest)
        sql = SESSION_COUNTS.format(marks(len(names)))
        counted = {row["session"]: row for row in self._database.rows(sql, names)}
        asked = self._asked([row["first"] for row in counted.values()])
        lines = []
        for row in newest:
            counts = counted[row["session"]]
            own = {name: row[name] for name in ("seq", "scope", "newest")}
            lines.append(read(SessionLine, counts, **own, asked=asked.get(counts["first"])))
        return lines

    def _asked(self, seqs: Sequence[int]) -> dict[int, str]:
        """The last user message before each of these turns; those without content are left out."""
        found = {}
        for seq, whole in whole_values(self._database, seqs).items():
            messages = orjson.loads(whole["conversation"])["messages"]
            asked = (message["content"] for message in reversed(messages) if message["role"] == "user")
            found[seq] = next(asked, None) or ""
        return found

    def source_lines(self, *, newest: int) -> list[SourceLine]:
        """The sources of the newest turns, those with most turns first."""
        counted: dict[str, Counter[str]] = defaultdict(Counter)
        for row in self._database.rows(SOURCES, (newest,)):
            for name in ("turns", "good", "bad", "hinted", "waiting", "trained"):
                counted[source_of(row["scope"])][name] += row[name]
        found = [SourceLine(source=source, **counts) for source, counts in counted.items()]
        return sorted(found, key=lambda line: (-line.turns, line.source))

    def judged_turns(self, *, limit: int) -> list[Judged]:
        """The newest judged turns with the judge's votes, in the order of arrival."""
        rows = self._database.rows(JUDGED, (limit,))
        votes: defaultdict[int, list[tuple[Question, int | None]]] = defaultdict(list)
        for row in self._database.rows(
            "SELECT seq, question, value FROM votes WHERE seq >= ? ORDER BY seq, place",
            (min((row["seq"] for row in rows), default=ALL),),
        ):
            votes[row["seq"]].append((Question(row["question"]), row["value"]))
        return [read(Judged, row, votes=tuple(votes[row["seq"]])) for row in reversed(rows)]


def _before(before: int | None) -> int:
    return ALL if before is None else before
