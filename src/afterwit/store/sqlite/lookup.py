"""The port's `ParentLookup` over SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import orjson

from afterwit.core.binding import LONG_REPLY, LONGEST, Branch, Candidate, Recent, Shape, plain_text
from afterwit.core.message import Message
from afterwit.core.turn import Kind
from afterwit.store.sqlite.codec import read_message
from afterwit.store.sqlite.component import Component
from afterwit.store.sqlite.database import marks
from afterwit.store.sqlite.growing import whole_values
from afterwit.store.sqlite.turn_state import turn_state_of

TURNS_OF_ONE = 8
"""Newest turns looked at for each conversation that is wanted: several may be of one conversation."""
MESSAGES_OF_ONE = 16
"""Last messages of a conversation that are compared with a message that may retell it."""
LARGEST_CONVERSATION = 4 << 20
"""Bytes; a larger one is not compared."""
FIRST_HASHES = 4
"""Prefix hashes looked up first, the deepest ones; then twice as many, and so on. A request's parent nearly
always ends a message or two before the request does."""

CHILDREN = "EXISTS (SELECT 1 FROM turns child WHERE child.parent = t.id AND child.kind <> 'side') AS children"

ANSWERED = "EXISTS (SELECT 1 FROM next_states n WHERE n.seq = t.seq) AS answered"
CANDIDATE = (
    "SELECT t.id, t.session, t.parent, t.prompt_hash, t.full_hash, t.depth, t.full_depth, t.delivered,"
    f" t.kind, t.created, c.shape, {ANSWERED}, {CHILDREN}"
)
FOUND = "FROM turns t LEFT JOIN contents c USING (seq)"
NEWEST_EQUAL = " UNION ".join(
    f"SELECT x.seq FROM wanted JOIN turns x ON x.seq IN (SELECT seq FROM turns WHERE {column} = wanted.hash"
    " AND scope = ? ORDER BY seq DESC LIMIT ?)"
    for column in ("prompt_hash", "full_hash")
)
"""The newest turns of each hash. The index of a hash holds them in the order of arrival."""
BRANCH = f"SELECT t.id, t.kind, t.revision > 0 AS answered, {CHILDREN} FROM turns t"


class SqliteParentLookup(Component):
    def candidates(
        self,
        scope: str,
        hashes: Sequence[bytes],
        turn_ids: Sequence[str],
        *,
        client_session: bytes | None = None,
        side_limit: int = 16,
        equal_limit: int = 32,
    ) -> list[Candidate]:
        found = {row["id"]: row for row in self._by_hash(scope, hashes, equal_limit)}
        if turn_ids:
            sql = f"{CANDIDATE} {FOUND} WHERE t.id IN ({marks(len(turn_ids))}) AND t.scope = ?"
            found |= {row["id"]: row for row in self._database.rows(sql, (*turn_ids, scope))}
        sides = {row["id"]: row for row in self._side_replies(scope, side_limit)}
        newest = {row["id"]: row for row in self._newest(scope, client_session)}
        plain = [
            _candidate(row, newest=turn in newest)
            for turn, row in (found | newest).items()
            if turn not in sides
        ]
        return plain + [_spoken(row) for row in sides.values()]

    def replies(self, scope: str, sessions: Collection[str], *, limit: int = 32) -> list[Candidate]:
        rows = self._database.rows(
            f"{CANDIDATE}, c.message {FOUND} WHERE t.session IN ({marks(len(sessions))}) AND t.scope = ?"
            " AND t.kind <> 'side' AND c.message IS NOT NULL ORDER BY t.seq DESC LIMIT ?",
            (*sessions, scope, limit),
        )
        return [_spoken(row) for row in rows]

    def recent(self, scope: str, *, limit: int = 16) -> list[Recent]:
        rows = self._database.rows(
            "SELECT seq, session FROM turns WHERE kind = 'main' AND scope = ? ORDER BY seq DESC LIMIT ?",
            (scope, limit * TURNS_OF_ONE),
        )
        newest = {row["session"]: row["seq"] for row in reversed(rows)}
        seqs = sorted(newest.values(), reverse=True)[:limit]
        contents = self._database.rows(
            "SELECT seq, t.id, t.session, t.parent, t.client_session, c.shape, c.message,"
            f" {CHILDREN} FROM contents c JOIN turns t USING (seq)"
            f" WHERE seq IN ({marks(len(seqs))})"
            " AND c.conversation_shared + length(c.conversation) <= ? ORDER BY seq DESC",
            (*seqs, LARGEST_CONVERSATION),
        )
        whole = whole_values(self._database, [row["seq"] for row in contents])
        return [_recent(row, whole[row["seq"]]["conversation"]) for row in contents if row["seq"] in whole]

    def _by_hash(self, scope: str, hashes: Sequence[bytes], equal_limit: int) -> Iterator[sqlite3.Row]:
        """Deepest first, until a turn is found whose prompt and response the request contains."""
        end, size = len(hashes), FIRST_HASHES
        while end > 0:
            part = hashes[max(0, end - size) : end]
            end, size = end - size, 2 * size
            wanted = ", ".join("(?)" for _ in part)
            sql = (
                f"WITH wanted(hash) AS (VALUES {wanted}) {CANDIDATE} {FOUND} WHERE t.seq IN ({NEWEST_EQUAL})"
            )
            rows = self._database.rows(sql, (*part, scope, equal_limit, scope, equal_limit))
            yield from rows
            if any(row["full_hash"] in part and row["full_depth"] > row["depth"] for row in rows):
                return

    def _side_replies(self, scope: str, limit: int) -> list[sqlite3.Row]:
        sql = (
            f"{CANDIDATE}, c.message {FOUND} WHERE t.kind = 'side' AND t.scope = ? AND length(c.message) >= ?"
        )
        return self._database.rows(f"{sql} ORDER BY t.seq DESC LIMIT ?", (scope, LONG_REPLY, limit))

    def _newest(self, scope: str, client_session: bytes | None) -> list[sqlite3.Row]:
        if client_session is None:
            return []
        sql = f"{CANDIDATE} {FOUND} WHERE t.client_session = ? AND t.scope = ? AND t.kind = 'main'"
        return self._database.rows(f"{sql} ORDER BY t.seq DESC LIMIT 1", (client_session, scope))

    def branch(self, turn: str) -> Branch | None:
        row = self._database.row(f"{BRANCH} WHERE t.id = ?", (turn,))
        return None if row is None else _branch(row)

    def branches(self, parent: str, *, limit: int = 32) -> list[Branch]:
        rows = self._database.rows(
            f"{BRANCH} WHERE t.parent = ? AND t.superseded_by IS NULL AND t.kind <> 'side'"
            " AND coalesce(t.reason, '') NOT IN ('superseded', 'client_left') ORDER BY t.seq DESC LIMIT ?",
            (parent, limit),
        )
        return [_branch(row) for row in reversed(rows)]

    def full_depth(self, turn: str) -> int:
        current = turn_state_of(self._database, turn)
        return int(self._database.rows("SELECT full_depth FROM turns WHERE seq = ?", (current.seq,))[0][0])


def _branch(row: sqlite3.Row) -> Branch:
    return Branch(
        turn=row["id"], kind=Kind(row["kind"]), children=row["children"], answered=bool(row["answered"])
    )


def _reply(row: sqlite3.Row) -> str:
    return plain_text(read_message(row["message"]))


def _recent(row: sqlite3.Row, conversation: bytes) -> Recent:
    messages = orjson.loads(conversation)["messages"]
    said = [Message.from_dict(message) for message in messages[-MESSAGES_OF_ONE:]]
    users = (Message.from_dict(message) for message in messages if message["role"] == "user")
    asked = (plain_text(message)[:LONGEST] for message in users)
    return Recent(
        session=row["session"],
        turn=row["id"],
        texts=(*(plain_text(one) for one in said if one.role not in ("system", "developer")), _reply(row)),
        asked=tuple(text for text in asked if text),
        shape=_shape(row),
        alone=row["parent"] is None and not row["children"],
        client_session=row["client_session"],
    )


@lru_cache(maxsize=256)
def _read_shape(line: str) -> Shape:
    """Read once: the turns of a session are nearly all made alike."""
    return Shape.read(line)


def _shape(row: sqlite3.Row) -> Shape | None:
    return None if row["shape"] is None else _read_shape(row["shape"])


def _spoken(row: sqlite3.Row) -> Candidate:
    """A candidate with its reply."""
    said = read_message(row["message"])
    return replace(_candidate(row), reply=plain_text(said), calls=bool(said.tool_calls))


def _candidate(row: sqlite3.Row, *, newest: bool = False) -> Candidate:
    return Candidate(
        turn=row["id"],
        session=row["session"],
        parent=row["parent"],
        prompt_hash=row["prompt_hash"],
        full_hash=row["full_hash"],
        depth=row["depth"],
        full_depth=row["full_depth"],
        delivered=bool(row["delivered"]),
        kind=Kind(row["kind"]),
        created=row["created"],
        children=row["children"],
        answered=bool(row["answered"]),
        shape=_shape(row),
        newest=newest,
    )
