"""The conversations that went on last, for requests that no turn is the parent of.

Each is read once: every request that begins a session asks for the same ones again.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson

from afterwit.core.binding import LONGEST, Recent, plain_text
from afterwit.core.kept import Kept
from afterwit.core.message import Message
from afterwit.store.sql.component import Component
from afterwit.store.sql.database import Database, Row, marks
from afterwit.store.sql.gateway.relatives import shape_of
from afterwit.store.sql.rows.codec import read_message
from afterwit.store.sql.rows.growing import whole_values

TURNS_OF_ONE = 8
"""Newest turns looked at for each conversation that is wanted: several may be of one conversation."""
MESSAGES_OF_ONE = 16
"""Last messages of a conversation that are compared with a message that may retell it."""
LARGEST_CONVERSATION = 4 << 20
"""Bytes; a larger one is not compared."""
MOST_KEPT_BYTES = 16 << 20
"""Of texts that were read once."""

END = "t.seq, t.id, t.parent IS NULL AS begins, c.conversation_shared + length(c.conversation) AS size"
FOUND = "FROM turns t LEFT JOIN contents c USING (seq)"
UNKNOWN = "(SELECT max(u.seq) FROM turns u WHERE u.session = t.session AND u.kind = 'unknown')"
"""The newest turn of the same session that may or may not be on its main line."""


class _End(NamedTuple):
    """The newest turn of a conversation: all that decides its `Recent`."""

    seq: int
    id: str
    """A number is given again if the newest turns were deleted."""
    begins: bool


class SqlRecent(Component):
    """A part of the port's `ParentLookup` over SQLite."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._recents = Kept(self._read_recent, most_bytes=MOST_KEPT_BYTES, size=_bytes)

    def recent(self, scope: str, *, limit: int = 16) -> list[Recent]:
        rows = self._ends(scope, limit)
        if unknown := [row["unknown"] for row in rows if row["unknown"] is not None]:
            sql = f"SELECT {END} {FOUND} WHERE t.seq IN ({marks(len(unknown))})"
            rows = sorted([*rows, *self._database.rows(sql, unknown)], key=_newest, reverse=True)
        ends = (row for row in rows if row["size"] is not None and row["size"] <= LARGEST_CONVERSATION)
        return [self._recents(_End(row["seq"], row["id"], bool(row["begins"]))) for row in ends]

    def _ends(self, scope: str, limit: int) -> list[Row]:
        """The newest main-line turns of the newest sessions, looked for among more turns until those are
        enough."""
        most, looked = limit * TURNS_OF_ONE, limit
        while True:
            rows = self._database.rows(
                f"SELECT {END}, t.session, {UNKNOWN} AS unknown {FOUND}"
                " WHERE t.kind = 'main' AND t.scope = ? ORDER BY t.seq DESC LIMIT ?",
                (scope, looked),
            )
            newest = {row["session"]: row for row in reversed(rows)}
            if len(newest) >= limit or len(rows) < looked or looked >= most:
                return sorted(newest.values(), key=_newest, reverse=True)[:limit]
            looked = min(2 * looked, most)

    def _read_recent(self, end: _End) -> Recent:
        (row,) = self._database.rows(
            "SELECT t.session, t.client_session, c.shape, c.message FROM contents c JOIN turns t USING (seq)"
            " WHERE seq = ?",
            (end.seq,),
        )
        whole = whole_values(self._database, (end.seq,))[end.seq]
        messages = orjson.loads(whole["conversation"])["messages"]
        last = [Message.from_dict(message) for message in messages[-MESSAGES_OF_ONE:]]
        users = (Message.from_dict(message) for message in messages if message["role"] == "user")
        asked = (plain_text(message)[:LONGEST] for message in users)
        texts = [plain_text(one) for one in last if one.role not in ("system", "developer")]
        return Recent(
            session=row["session"],
            turn=end.id,
            texts=(*texts, plain_text(read_message(row["message"]))),
            asked=tuple(text for text in asked if text),
            shape=shape_of(row),
            begins=end.begins,
            client_session=row["client_session"],
        )


def _newest(row: Row) -> int:
    seq: int = row["seq"]
    return seq


def _bytes(end: _End, recent: Recent) -> int:
    return sum(4 * len(text) + 64 for text in (*recent.texts, *recent.asked))
