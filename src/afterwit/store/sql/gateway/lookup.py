"""The port's `ParentLookup` in SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from afterwit.core.binding import LONG_REPLY, Branch, Candidate, plain_text, reply_segments
from afterwit.core.errors import TurnNotFound
from afterwit.core.kept import Kept
from afterwit.core.turn import Kind
from afterwit.store.sql.component import Component
from afterwit.store.sql.database import Database, Row, marks
from afterwit.store.sql.gateway.relatives import CHILDREN, shape_of
from afterwit.store.sql.rows.codec import read_message

FIRST_HASHES = 4
"""Prefix hashes looked up first, the deepest ones; then twice as many, and so on. A request's parent nearly
always ends a message or two before the request does."""

ANSWERED = "EXISTS (SELECT 1 FROM next_states n WHERE n.seq = t.seq) AS answered"
CANDIDATE = (
    "SELECT t.seq, t.id, t.session, t.parent, t.prompt_hash, t.full_hash, t.depth, t.full_depth, t.delivered,"
    f" t.kind, t.created, c.shape, {ANSWERED}, {CHILDREN} AS children"
)
FOUND = "FROM turns t LEFT JOIN contents c USING (seq)"
NOT_ANOTHER = "coalesce(t.client_session = ?, true)"
"""Not under another session id of the client."""
EQUAL = tuple(
    f"SELECT seq FROM turns WHERE {column} = wanted.hash AND scope = ? ORDER BY seq DESC LIMIT ?"
    for column in ("prompt_hash", "full_hash")
)
"""The newest turns of one hash. The index of a hash holds them in the order of arrival."""
BRANCH = f"SELECT t.id, t.kind, t.revision > 0 AS answered, {CHILDREN} AS children FROM turns t"


MOST_REPLY_BYTES = 16 << 20
"""Of replies that were read once: every request of a session asks for those of its earlier turns."""


class _Row(NamedTuple):
    seq: int
    id: str
    """A number is given again if the newest turns were deleted."""


class _Reply(NamedTuple):
    """What a turn replied, as `Candidate` holds it."""

    text: str
    segments: tuple[tuple[str, ...], ...]


class SqlParentLookup(Component):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._equal = " UNION ".join(
            f"SELECT x.seq FROM wanted {database.EACH.format(each)}" for each in EQUAL
        )
        self._replies = Kept(self._read_reply, most_bytes=MOST_REPLY_BYTES, size=_bytes)

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
            named = self._database.rows(f"{sql} AND {NOT_ANOTHER}", (*turn_ids, scope, client_session))
            found |= {row["id"]: row for row in named}
        sides = {row["id"]: row for row in self._side_replies(scope, client_session, side_limit)}
        newest = {row["id"]: row for row in self._newest(scope, client_session)}
        plain = [
            _candidate(row, newest=turn in newest)
            for turn, row in (found | newest).items()
            if turn not in sides
        ]
        return plain + [self._spoken(row) for row in sides.values()]

    def replies(self, scope: str, sessions: Collection[str], *, limit: int = 32) -> list[Candidate]:
        rows = self._database.rows(
            f"{CANDIDATE} {FOUND} WHERE t.session IN ({marks(len(sessions))}) AND t.scope = ?"
            " AND t.kind <> 'side' AND c.seq IS NOT NULL ORDER BY t.seq DESC LIMIT ?",
            (*sessions, scope, limit),
        )
        return [self._spoken(row) for row in rows]

    def _spoken(self, row: Row) -> Candidate:
        """A candidate with its reply."""
        return _candidate(row, self._replies(_Row(row["seq"], row["id"])))

    def _read_reply(self, turn: _Row) -> _Reply:
        row = self._database.rows("SELECT message FROM contents WHERE seq = ?", (turn.seq,))[0]
        said = read_message(row["message"])
        return _Reply(plain_text(said), reply_segments(said))

    def _by_hash(self, scope: str, hashes: Sequence[bytes], equal_limit: int) -> Iterator[Row]:
        """Deepest first, until a turn is found whose prompt and response the request contains."""
        end, size = len(hashes), FIRST_HASHES
        while end > 0:
            part = hashes[max(0, end - size) : end]
            end, size = end - size, 2 * size
            wanted = ", ".join("(?)" for _ in part)
            sql = f"WITH wanted(hash) AS (VALUES {wanted}) {CANDIDATE} {FOUND} WHERE t.seq IN ({self._equal})"
            rows = self._database.rows(sql, (*part, scope, equal_limit, scope, equal_limit))
            yield from rows
            if any(row["full_hash"] in part and row["full_depth"] > row["depth"] for row in rows):
                return

    def _side_replies(self, scope: str, client_session: bytes | None, limit: int) -> Sequence[Row]:
        """Of the client's own session, if it names one: the newest of all may be others'."""
        sql = f"{CANDIDATE} {FOUND} WHERE t.kind = 'side' AND t.scope = ? AND length(c.message) >= ?"
        own, values = ("", ()) if client_session is None else (" AND t.client_session = ?", (client_session,))
        return self._database.rows(
            f"{sql}{own} ORDER BY t.seq DESC LIMIT ?", (scope, LONG_REPLY, *values, limit)
        )

    def _newest(self, scope: str, client_session: bytes | None) -> Sequence[Row]:
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
        row = self._database.row("SELECT full_depth FROM turns WHERE id = ?", (turn,))
        if row is None:
            raise TurnNotFound(f"there is no turn {turn}")
        return int(row["full_depth"])


def _branch(row: Row) -> Branch:
    return Branch(
        turn=row["id"], kind=Kind(row["kind"]), children=row["children"], answered=bool(row["answered"])
    )


def _bytes(turn: _Row, reply: _Reply) -> int:
    return 4 * len(reply.text) + 4 * sum(len(part) for parts in reply.segments for part in parts)


def _candidate(row: Row, reply: _Reply | None = None, *, newest: bool = False) -> Candidate:
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
        reply=None if reply is None else reply.text,
        said=() if reply is None else reply.segments,
        shape=shape_of(row),
        newest=newest,
    )
