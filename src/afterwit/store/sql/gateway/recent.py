"""The conversations that went on last, for requests that no turn is the parent of.

Each is read once: every request that begins a session asks for the same ones again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from afterwit.core.binding import LONGEST, Recent, message_text, plain_text
from afterwit.core.kept import Kept
from afterwit.core.message import SYSTEM, Message
from afterwit.core.turn import RecordedTurn
from afterwit.store.sql.component import Component
from afterwit.store.sql.database import Database, Row, marks
from afterwit.store.sql.gateway.relatives import read_shape
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

MOST_AT_HAND = 64
"""Conversations that began last and were not asked for yet: some never are."""
LONGEST_AT_HAND = 32_768
"""Characters of one of them. Of a longer one what may be asked for is taken out at once."""

END = "t.seq, t.id, c.conversation_shared + length(c.conversation) AS size"
FOUND = "FROM turns t LEFT JOIN contents c USING (seq)"
UNKNOWN = "(SELECT max(u.seq) FROM turns u WHERE u.session = t.session AND u.kind = 'unknown')"
"""The newest turn of the same session that may or may not be on its main line."""


class _AtHand(NamedTuple):
    """A conversation that began, as it was stored."""

    messages: Sequence[Message]
    reply: Message
    session: str
    shape: str | None
    client_session: bytes | None


class SqlRecent(Component):
    """A part of the port's `ParentLookup` in SQL."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._recents = Kept(self._read_recent, most_bytes=MOST_KEPT_BYTES, size=_bytes)
        """By the conversation's newest turn, which decides it."""
        self._at_hand = dict[str, _AtHand]()
        """What began last and nobody asked for yet, oldest first."""

    def recent(self, scope: str, *, limit: int = 16) -> list[Recent]:
        rows = self._ends(scope, limit)
        if unknown := [row["unknown"] for row in rows if row["unknown"] is not None]:
            sql = f"SELECT {END} {FOUND} WHERE t.seq IN ({marks(len(unknown))})"
            rows = sorted([*rows, *self._database.rows(sql, unknown)], key=_newest, reverse=True)
        found = [(row["id"], row["size"]) for row in rows]
        return [
            self._recents(turn) for turn, size in found if size is not None and size <= LARGEST_CONVERSATION
        ]

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
            newest = dict[str, Row]()
            for row in rows:
                newest.setdefault(row["session"], row)
            if len(newest) >= limit or len(rows) < looked or looked >= most:
                return list(newest.values())[:limit]
            looked = min(2 * looked, most)

    def _begun(self, turn: RecordedTurn, shape: str | None, client_session: bytes | None) -> None:
        """A turn that follows no other was stored: the next requests of its scope compare themselves with it.

        Of a short one all is at hand; a long one is read when it is asked for.
        """
        messages = turn.conversation.messages
        if len(messages) > MESSAGES_OF_ONE:
            return
        begun = _AtHand(messages, turn.message, turn.session, shape, client_session)
        if turn.conversation.characters > LONGEST_AT_HAND:
            self._recents.keep(turn.id, _recent_begun(turn.id, begun))
            return
        self._at_hand[turn.id] = begun
        if len(self._at_hand) > MOST_AT_HAND:
            del self._at_hand[next(iter(self._at_hand))]

    def _read_recent(self, turn: str) -> Recent:
        begun = self._at_hand.pop(turn, None)
        return self._read_stored(turn) if begun is None else _recent_begun(turn, begun)

    def _read_stored(self, turn: str) -> Recent:
        (row,) = self._database.rows(
            "SELECT t.seq, t.session, t.client_session, t.parent, c.shape, c.message"
            " FROM contents c JOIN turns t USING (seq) WHERE t.id = ?",
            (turn,),
        )
        whole = whole_values(self._database, (row["seq"],))[row["seq"]]
        messages = orjson.loads(whole["conversation"])["messages"]
        first = len(messages) - MESSAGES_OF_ONE
        said = [
            (message["role"], plain_text(Message.from_dict(message)))
            for index, message in enumerate(messages)
            if index >= first or message["role"] == "user"
        ]
        return _recent(
            turn,
            said,
            session=row["session"],
            reply=plain_text(read_message(row["message"])),
            shape=row["shape"],
            begins=row["parent"] is None,
            client_session=row["client_session"],
        )


def _recent_begun(turn: str, begun: _AtHand) -> Recent:
    return _recent(
        turn,
        [(message.role, message_text(message)) for message in begun.messages],
        session=begun.session,
        reply=message_text(begun.reply),
        shape=begun.shape,
        begins=True,
        client_session=begun.client_session,
    )


def _recent(
    turn: str,
    said: Sequence[tuple[str, str]],
    *,
    session: str,
    reply: str,
    shape: str | None,
    begins: bool,
    client_session: bytes | None,
) -> Recent:
    """`said`: roles and texts, of all user messages and of the last `MESSAGES_OF_ONE`."""
    asked = (text[:LONGEST] for role, text in said if role == "user")
    last = (text for role, text in said[-MESSAGES_OF_ONE:] if role not in SYSTEM)
    return Recent(
        session=session,
        turn=turn,
        texts=(*last, reply),
        asked=tuple(text for text in asked if text),
        shape=None if shape is None else read_shape(shape),
        begins=begins,
        client_session=client_session,
    )


def _newest(row: Row) -> int:
    seq: int = row["seq"]
    return seq


def _bytes(turn: str, recent: Recent) -> int:
    return sum(4 * len(text) + 64 for text in (*recent.texts, *recent.asked))
