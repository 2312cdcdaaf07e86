"""The conversations that went on last, for requests that no turn is the parent of.

Each is read once: every request that begins a session asks for the same ones again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from afterwit.core.binding import LONGEST, Recent, plain_text
from afterwit.core.kept import Kept
from afterwit.core.message import Message
from afterwit.store.sql.component import Component
from afterwit.store.sql.database import Database, marks
from afterwit.store.sql.gateway.relatives import CHILDREN, shape_of
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


class _End(NamedTuple):
    """The newest turn of a conversation: all that decides its `Recent`."""

    seq: int
    id: str
    """A number is given again if the newest turns were deleted."""
    alone: bool


class SqlRecent(Component):
    """A part of the port's `ParentLookup` over SQLite."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._recents = Kept(self._read_recent, most_bytes=MOST_KEPT_BYTES, size=_bytes)

    def recent(self, scope: str, *, limit: int = 16) -> list[Recent]:
        seqs = self._ends(scope, limit)
        rows = self._database.rows(
            f"SELECT seq, t.id, t.parent IS NULL AND NOT {CHILDREN} AS alone"
            f" FROM contents c JOIN turns t USING (seq) WHERE seq IN ({marks(len(seqs))})"
            " AND c.conversation_shared + length(c.conversation) <= ? ORDER BY seq DESC",
            (*seqs, LARGEST_CONVERSATION),
        )
        return [self._recents(_End(seq, turn, bool(alone))) for seq, turn, alone in rows]

    def _ends(self, scope: str, limit: int) -> list[int]:
        """The newest main-line turns of the newest sessions, from more turns until those are enough, and
        what is unknown of these sessions."""
        most, looked = limit * TURNS_OF_ONE, limit
        while True:
            rows = self._database.rows(
                "SELECT seq, session FROM turns WHERE kind = 'main' AND scope = ? ORDER BY seq DESC LIMIT ?",
                (scope, looked),
            )
            newest = {row["session"]: row["seq"] for row in reversed(rows)}
            if len(newest) >= limit or len(rows) < looked or looked >= most:
                ends = sorted(newest.values(), reverse=True)[:limit]
                return ends + self._newest_unknown([one for one, seq in newest.items() if seq in ends])
            looked = min(2 * looked, most)

    def _newest_unknown(self, sessions: Sequence[str]) -> list[int]:
        """The newest turn of each session that may or may not be on its main line."""
        rows = self._database.rows(
            "SELECT max(seq) AS seq FROM turns WHERE kind = 'unknown'"
            f" AND session IN ({marks(len(sessions))}) GROUP BY session",
            tuple(sessions),
        )
        return [row["seq"] for row in rows]

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
            alone=end.alone,
            client_session=row["client_session"],
        )


def _bytes(end: _End, recent: Recent) -> int:
    return sum(4 * len(text) + 64 for text in (*recent.texts, *recent.asked))
