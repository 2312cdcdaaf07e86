"""Turns, sessions and sources as people look through them: lines without conversations, a search, and counts.

A page of a list goes on after the last line of the one before: `before` is its `seq`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from afterwit.judging.checks import Judged
from afterwit.lifecycle import Reason, State
from afterwit.store.database import ALL, marks
from afterwit.store.reading import PAGE, Filter, Reading, Record, by_source, conditions, versions_of
from afterwit.store.rows import last_said, read, unpack_message, whole_values
from afterwit.turn import Kind, Message, Turn
from afterwit.verdict import NextState, Question

TURN_LINES = """
    SELECT t.seq, t.id AS turn, t.session, t.scope, t.kind, t.created, t.imported, t.state, t.reason, t.error,
        c.message, v.reward, v.hints
    FROM turns t JOIN contents c USING (seq) LEFT JOIN verdicts v USING (seq)
"""

SEARCHED, SEARCHED_BYTES = 2_000, 4 << 20
"""The newest turns that one search reads, and about the bytes of their words: a search holds up all calls."""

WORDS_BYTES = 32 << 10
"""Of a conversation's end, in which the words that a turn answers are looked for."""

WORDS = f"""
    SELECT t.seq, t.id, t.created, c.message,
        CASE WHEN length(c.conversation) <= {WORDS_BYTES} THEN c.conversation
        ELSE substr(c.conversation, length(c.conversation) - {WORDS_BYTES}) END AS said
    FROM turns t JOIN contents c USING (seq) WHERE t.seq < ? AND t.kind = 'main'{{}}
    ORDER BY t.seq DESC LIMIT ?
"""

EXCERPT = 240
"""Characters of what is shown around words that were found."""

CLIENTS = """
    WITH RECURSIVE known(scope) AS (
        SELECT min(scope) FROM turns WHERE kind = 'main' UNION ALL
        SELECT (SELECT min(t.scope) FROM turns t WHERE t.kind = 'main' AND t.scope > known.scope) FROM known
        WHERE known.scope IS NOT NULL
    )
    SELECT scope FROM known WHERE scope IS NOT NULL LIMIT ?
"""
"""Steps through the index of main turns: one look-up for each."""

SESSIONS = """
    SELECT t.seq, t.session, t.scope, t.created AS newest FROM turns t
    WHERE t.seq < ? AND t.kind = 'main'{} AND NOT EXISTS (
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
    FROM (SELECT * FROM turns WHERE kind <> 'practice' ORDER BY seq DESC LIMIT ?) t
    LEFT JOIN verdicts v USING (seq)
    GROUP BY t.scope
"""

JUDGED = """
    SELECT v.seq, t.id AS turn, t.session, v.reward, v.source, v.hinted, v.at, t.oldest_version AS version,
        coalesce(v.signature, 'text') AS kind,
        (SELECT e.bad IS NULL AND e.complaint = 0 FROM episodes e WHERE e.turn = t.id) AS ended_well,
        (SELECT f.reward FROM feedback f WHERE f.seq = v.seq AND f.reward IS NOT NULL
            ORDER BY f.number DESC LIMIT 1) AS feedback
    FROM verdicts v JOIN turns t USING (seq) WHERE t.kind <> 'practice' ORDER BY v.seq DESC LIMIT ?
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLine:
    """A turn without its conversation."""

    seq: int
    turn: str
    session: str
    scope: str
    kind: Kind
    created: float
    imported: bool
    state: State
    reason: Reason | None
    error: str | None
    message: Message
    reward: int | None
    """None: not judged."""
    hints: tuple[str, ...]
    trained_in: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A turn in which words were found."""

    line: TurnLine
    text: str
    """The text of the person or the model around the first of the words, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The turns in which words were found, the newest first."""

    hits: tuple[Hit, ...]
    read: int
    since: float | None
    """When the oldest of these was asked; None: there was none to read."""
    before: int | None
    """The place at which the search continues; None: all were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLine:
    """A session, counted over its main turns."""

    seq: int
    """Of its newest main turn."""
    session: str
    scope: str
    begun: float
    newest: float
    """When its first and its newest turn were requested, in seconds since the epoch."""
    turns: int
    good: int
    bad: int
    """Turns with a reward of 1 and of -1."""
    hinted: int
    trained: int
    asked: str | None
    """The last user message before its first turn; None if that is not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A source, counted over its turns."""

    source: str
    turns: int
    good: int
    bad: int
    hinted: int
    waiting: int
    """Turns that wait for the learner or a person."""
    trained: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of turns by state, and of skipped turns by reason. Zeros are left out."""

    states: Mapping[State, int] = field(default_factory=dict)
    reasons: Mapping[Reason, int] = field(default_factory=dict)
    invalid_votes: int = 0
    """Votes of the judge that could not be read, or whose hint was rejected."""


class Browsing(Reading):
    """Read by the page and the commands."""

    def turn_lines(
        self, where: Filter | None = None, *, before: int | None = None, limit: int = 50
    ) -> list[TurnLine]:
        """Turns with content, the newest first."""
        clauses, values = conditions(where or Filter())
        return self._lines(clauses, values, before=before, limit=limit)

    def _lines(
        self, clauses: str, values: Sequence[Any], *, before: int | None = None, limit: int
    ) -> list[TurnLine]:
        sql = f"{TURN_LINES} WHERE t.seq < ?{clauses} ORDER BY t.seq DESC LIMIT ?"
        rows = self._db.rows(sql, (ALL if before is None else before, *values, limit))
        trained = self._trained([row["turn"] for row in rows])
        return [
            read(TurnLine, row, trained_in=versions_of(trained[row["turn"]], replayed=False)) for row in rows
        ]

    def search(
        self,
        words: str,
        *,
        scope: str | None = None,
        before: int | None = None,
        limit: int,
        most: int = SEARCHED,
    ) -> Found:
        """The newest main turns with all these words in the person's text, the answer or the feedback,
        whatever their case. It reads at most `most` turns, the newest, or those `before`."""
        wanted, clauses = words.casefold().split(), conditions(Filter(scope=scope))
        place, read_, size = ALL if before is None else before, list[float](), 0
        texts = dict[int, str]()
        while place and len(texts) < limit and len(read_) < most and size < SEARCHED_BYTES:
            chunk = min(PAGE, most - len(read_))
            rows = self._db.rows(WORDS.format(clauses[0]), (place, *clauses[1], chunk))
            seqs = [row["seq"] for row in rows]
            feedback = self._grouped(f"* FROM feedback WHERE seq IN ({marks(len(seqs))})", seqs)
            for row in rows:
                if len(texts) == limit:
                    break
                place, size = row["seq"], size + len(row["said"]) + len(row["message"])
                read_.append(row["created"])
                given = [each[name] for each in feedback[place] for name in ("words", "hint", "correction")]
                answer = unpack_message(row["message"]).content
                excerpt = _excerpt([*last_said(row["said"]), answer, *given], wanted)
                if excerpt is not None:
                    texts[place] = excerpt
            if len(rows) < chunk and (not rows or place == seqs[-1]):
                place = 0
        lines = self._lines(f" AND t.seq IN ({marks(len(texts))})", list(texts), limit=limit)
        return Found(
            hits=tuple(Hit(line=line, text=texts[line.seq]) for line in lines),
            read=len(read_),
            since=read_[-1] if read_ else None,
            before=place or None,
        )

    def clients(self, *, limit: int) -> list[str]:
        """The scopes of main turns, in order."""
        return [row["scope"] for row in self._db.rows(CLIENTS, (limit,))]

    def session_lines(
        self, *, scope: str | None = None, before: int | None = None, limit: int = 30
    ) -> list[SessionLine]:
        """Sessions by their newest main turn, the newest first; of all clients, or of one."""
        clauses, values = conditions(Filter(scope=scope))
        newest = self._db.rows(SESSIONS.format(clauses), (ALL if before is None else before, *values, limit))
        names = tuple(row["session"] for row in newest)
        sql = SESSION_COUNTS.format(marks(len(names)))
        counted = {row["session"]: row for row in self._db.rows(sql, names)}
        asked = dict[int, str]()
        for seq, whole in whole_values(self._db, [row["first"] for row in counted.values()]).items():
            messages = orjson.loads(whole["conversation"])["messages"]
            words = (message["content"] for message in reversed(messages) if message["role"] == "user")
            asked[seq] = next(words, None) or ""
        lines = []
        for row in newest:
            counts = counted[row["session"]]
            own = {name: row[name] for name in ("seq", "scope", "newest")}
            lines.append(read(SessionLine, counts, **own, asked=asked.get(counts["first"])))
        return lines

    def source_lines(self, *, newest: int) -> list[SourceLine]:
        """The sources of the newest turns, those with most turns first."""
        rows = self._db.rows(SOURCES, (newest,))
        counted = by_source(rows, "turns", "good", "bad", "hinted", "waiting", "trained")
        found = [SourceLine(source=source, **counts) for source, counts in counted.items()]
        return sorted(found, key=lambda line: (-line.turns, line.source))

    def judged_turns(self, *, limit: int) -> list[Judged]:
        """The newest judged turns with the judge's votes, in the order of arrival."""
        rows = self._db.rows(JUDGED, (limit,))
        votes: defaultdict[int, list[tuple[Question, int | None]]] = defaultdict(list)
        for row in self._db.rows(
            "SELECT seq, question, value FROM votes WHERE seq >= ? AND question <> ? ORDER BY seq, place",
            (min((row["seq"] for row in rows), default=ALL), Question.OWN_WORDS.value),
        ):
            votes[row["seq"]].append((Question(row["question"]), row["value"]))
        return [read(Judged, row, votes=tuple(votes[row["seq"]])) for row in reversed(rows)]

    def counts(self) -> Counts:
        """Turns by state, and ended turns by reason."""
        states: Counter[State] = Counter()
        reasons: dict[Reason, int] = {}
        sql = "SELECT state, reason, count(*) AS count FROM turns GROUP BY state, reason"
        for row in self._db.rows(sql):
            states[State(row["state"])] += row["count"]
            if row["reason"] is not None:
                reasons[Reason(row["reason"])] = row["count"]
        invalid = self._db.value("SELECT count(*) FROM votes WHERE value IS NULL")
        return Counts(states=dict(states), reasons=reasons, invalid_votes=invalid)


def _excerpt(texts: Sequence[str | None], wanted: Sequence[str]) -> str | None:
    """The text around the first of the words, in lower case; None unless all are in the texts."""
    folded = [(text or "").casefold() for text in texts]
    if not all(any(word in text for text in folded) for word in wanted):
        return None
    shown = next((at for at, text in enumerate(folded) if wanted and wanted[0] in text), 0)
    start = max(0, folded[shown].find(wanted[0]) - EXCERPT // 3) if wanted else 0
    text = texts[shown] or ""
    cut, more = " ".join(text[start : start + EXCERPT].split()), start + EXCERPT < len(text)
    return f"{'…' * (start > 0)}{cut}{'…' * more}"


def summary(record: Record) -> dict[str, Any]:
    """The fields that a list of turns shows."""
    turn, verdict = record.turn, record.verdict
    return {
        "id": turn.id,
        "session": turn.session,
        "parent": turn.parent,
        "kind": turn.kind.value,
        "state": record.state.value,
        "reason": record.reason and record.reason.value,
        "imported": not isinstance(turn, Turn),
        "versions": sorted(set(turn.sampled.versions)) if isinstance(turn, Turn) else [],
        "trained_in": list(record.trained_in),
        "created": turn.created,
        "next_state": record.next_state and next_state(record.next_state),
        "reward": None if verdict is None else verdict.reward,
        "hints": [] if verdict is None else list(verdict.hints),
    }


def whole(record: Record) -> dict[str, Any]:
    """Everything stored about a turn, ids and log-probs included; an imported turn has none of these."""
    turn, verdict = record.turn, record.verdict
    return summary(record) | {
        "scope": turn.scope,
        "model": turn.model,
        "teaches": turn.teaches,
        "conversation": turn.conversation.to_dict(),
        "response": turn.message.to_dict(),
        "finish": turn.finish.value,
        **(_sampled(turn) if isinstance(turn, Turn) else {}),
        "delivered": record.delivered,
        "superseded_by": record.superseded_by,
        "source": None if verdict is None else verdict.source.value,
        "votes": [] if verdict is None else [asdict(vote) for vote in verdict.votes],
        "rl": record.rl,
        "opd": record.opd,
        "replayed_in": list(record.replayed_in),
    }


def _sampled(turn: Turn) -> dict[str, Any]:
    return {
        "sampling": asdict(turn.sampling),
        "prompt_ids": list(turn.prompt_ids),
        "ids": list(turn.sampled.ids),
        "logprobs": list(turn.sampled.logprobs),
        "token_versions": list(turn.sampled.versions),
        "forced": list(turn.sampled.forced),
        "basis": turn.sampled.basis.value,
    }


def next_state(state: NextState) -> dict[str, Any]:
    feedback = None if state.feedback is None else asdict(state.feedback)
    return {"messages": [message.to_dict() for message in state.messages], "feedback": feedback}
