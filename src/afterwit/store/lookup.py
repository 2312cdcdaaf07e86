"""The turns that a request may follow, for binding."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import orjson

from afterwit.binding.evidence import LONG_REPLY, LONGEST_TEXT, Candidate, Recent
from afterwit.binding.request import Shape, plain_text, read_message
from afterwit.byte_cache import ByteCache
from afterwit.message import SYSTEM, Message
from afterwit.store.database import Database, Part, Row, marks
from afterwit.store.prefix_delta import whole_values
from afterwit.store.rows import read, unpack_message
from afterwit.turn import RecordedTurn

FIRST_HASHES = 4
"""Prefix hashes looked up first, the deepest ones; then twice as many, and so on. A request's parent nearly
always ends a message or two before the request does."""

CHILDREN = "EXISTS (SELECT 1 FROM turns child WHERE child.parent = t.id AND child.kind <> 'side')"
"""Whether the turn that a query calls `t` has any."""

COLUMNS = f"""
    SELECT t.seq, t.id AS turn, t.session, t.parent, t.prompt_hash, t.full_hash, t.depth, t.full_depth,
        t.delivered, t.kind, t.created, c.shape, {CHILDREN} AS children, {{}} AS answered
    FROM turns t LEFT JOIN contents c USING (seq)
"""

CANDIDATE = COLUMNS.format("EXISTS (SELECT 1 FROM next_states n WHERE n.seq = t.seq)")

SIBLING = COLUMNS.format("t.revision > 0")

EQUAL = tuple(
    f"SELECT seq FROM turns WHERE {column} = wanted.hash AND scope = ? ORDER BY seq DESC LIMIT ?"
    for column in ("prompt_hash", "full_hash")
)
"""The newest turns of one hash, in the order of the index."""


MOST_REPLY_BYTES = 16 << 20
"""Of cached replies: every request of a session needs those of its earlier turns."""

MOST_RECENT_BYTES = 16 << 20
"""Of cached conversations."""

TURNS_PER_SESSION = 8
"""Newest turns looked at for each conversation that is wanted: several may be of one conversation."""

LAST_MESSAGES = 16
"""Messages of a conversation that are compared with a message that may retell it."""

LARGEST_CONVERSATION = 4 << 20
"""Bytes; a larger one is not compared."""

MOST_BEGUN, LONGEST_BEGUN = 64, 32_768
"""Conversations that just began and stay in memory until they are compared, and characters of one."""

RECENT = """
    SELECT t.seq, t.id, t.session, c.conversation_shared + length(c.conversation) AS size,
        (SELECT max(u.seq) FROM turns u WHERE u.session = t.session AND u.kind = 'unknown') AS unknown
    FROM turns t LEFT JOIN contents c USING (seq)
"""
"""`unknown` is the session's newest turn that may or may not be on its main line."""


class _Reply(NamedTuple):
    text: str
    segments: tuple[tuple[str, ...], ...]


class ParentLookup(Part):
    """Read-only. Side turns are never counted as children."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._equal = " UNION ".join(f"SELECT x.seq FROM wanted {database.EACH.format(one)}" for one in EQUAL)
        # by `seq` and id: a number is reused if the newest turns were deleted
        self._replies = ByteCache(self._read_reply, most_bytes=MOST_REPLY_BYTES, size=_bytes_of_reply)
        self._recents = ByteCache(self._read_recent, most_bytes=MOST_RECENT_BYTES, size=_bytes_of_recent)
        self._begun = dict[str, tuple[RecordedTurn, str | None, bytes | None]]()

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
        """The turns of a scope that a request may continue, repeat or edit, in no order.

        `hashes` are the request's prefix hashes, shallow to deep; turns that the deepest possible parent
        makes irrelevant may be left out. Of turns with an equal hash only the newest `equal_limit` come, so
        that requests stay fast if a client repeats a prompt forever. `turn_ids` are the turns that its
        tool-call ids name. The newest `side_limit` side turns with replies of at least `LONG_REPLY` bytes
        come with them: a compacted conversation may quote one. If the client names its sessions, the newest
        main turn of `client_session` comes too, and none of another session of the client.
        """
        found = {row["turn"]: row for row in self._by_hash(scope, hashes, equal_limit)}
        if turn_ids:
            named = self._database.rows(
                f"{CANDIDATE} WHERE t.id IN ({marks(len(turn_ids))}) AND t.scope = ?"
                " AND coalesce(t.client_session = ?, true)",
                (*turn_ids, scope, client_session),
            )
            found |= {row["turn"]: row for row in named}
        sides = {row["turn"]: row for row in self._side_replies(scope, client_session, side_limit)}
        newest = {row["turn"]: row for row in self._newest(scope, client_session)}
        plain = [
            _candidate(row, newest=turn in newest)
            for turn, row in (found | newest).items()
            if turn not in sides
        ]
        return plain + [self._with_reply(row) for row in sides.values()]

    def _by_hash(self, scope: str, hashes: Sequence[bytes], equal_limit: int) -> Iterator[Row]:
        """Deepest first, until a turn is found whose prompt and response the request contains."""
        end, size = len(hashes), FIRST_HASHES
        while end > 0:
            part = hashes[max(0, end - size) : end]
            end, size = end - size, 2 * size
            wanted = ", ".join("(?)" for _ in part)
            sql = f"WITH wanted(hash) AS (VALUES {wanted}) {CANDIDATE} WHERE t.seq IN ({self._equal})"
            rows = self._database.rows(sql, (*part, scope, equal_limit, scope, equal_limit))
            yield from rows
            if any(row["full_hash"] in part and row["full_depth"] > row["depth"] for row in rows):
                return

    def _side_replies(self, scope: str, client_session: bytes | None, limit: int) -> Sequence[Row]:
        own, values = ("", ()) if client_session is None else (" AND t.client_session = ?", (client_session,))
        return self._database.rows(
            f"{CANDIDATE} WHERE t.kind = 'side' AND t.scope = ? AND length(c.message) >= ?{own}"
            " ORDER BY t.seq DESC LIMIT ?",
            (scope, LONG_REPLY, *values, limit),
        )

    def _newest(self, scope: str, client_session: bytes | None) -> Sequence[Row]:
        if client_session is None:
            return []
        return self._database.rows(
            f"{CANDIDATE} WHERE t.client_session = ? AND t.scope = ? AND t.kind = 'main'"
            " ORDER BY t.seq DESC LIMIT 1",
            (client_session, scope),
        )

    def replies(self, scope: str, sessions: Collection[str], *, limit: int = 32) -> list[Candidate]:
        """The newest turns of these sessions with their replies, side turns left out."""
        rows = self._database.rows(
            f"{CANDIDATE} WHERE t.session IN ({marks(len(sessions))}) AND t.scope = ?"
            " AND t.kind <> 'side' AND c.seq IS NOT NULL ORDER BY t.seq DESC LIMIT ?",
            (*sessions, scope, limit),
        )
        return [self._with_reply(row) for row in rows]

    def _with_reply(self, row: Row) -> Candidate:
        return _candidate(row, self._replies((row["seq"], row["turn"])))

    def _read_reply(self, turn: tuple[int, str]) -> _Reply:
        row = self._database.rows("SELECT message FROM contents WHERE seq = ?", turn[:1])[0]
        message = unpack_message(row["message"])
        return _Reply(plain_text(message), read_message(message).segments)

    def candidate(self, turn: str) -> Candidate | None:
        """A turn as one among its siblings; None if it is not stored."""
        row = self._database.row(f"{SIBLING} WHERE t.id = ?", (turn,))
        return None if row is None else _candidate(row)

    def children(self, parent: str, *, limit: int = 32) -> list[Candidate]:
        """The newest `limit` of a turn's children, oldest first; side, retried and abandoned turns left out.

        The limit keeps requests fast if a client regenerates a response forever.
        """
        rows = self._database.rows(
            f"{SIBLING} WHERE t.parent = ? AND t.superseded_by IS NULL AND t.kind <> 'side'"
            " AND coalesce(t.reason, '') NOT IN ('superseded', 'client_left') ORDER BY t.seq DESC LIMIT ?",
            (parent, limit),
        )
        return [_candidate(row) for row in reversed(rows)]

    def recent(self, scope: str, *, limit: int = 16) -> list[Recent]:
        """The scope's most recently continued conversations.

        One with a branch that may or may not be the main line comes a second time, as of that branch.
        """
        rows = self._newest_of_sessions(scope, limit)
        if unknown := [row["unknown"] for row in rows if row["unknown"] is not None]:
            branches = self._database.rows(f"{RECENT} WHERE t.seq IN ({marks(len(unknown))})", unknown)
            rows = sorted([*rows, *branches], key=lambda row: int(row["seq"]), reverse=True)
        found = [(row["id"], row["size"]) for row in rows]
        return [
            self._recents(turn) for turn, size in found if size is not None and size <= LARGEST_CONVERSATION
        ]

    def _newest_of_sessions(self, scope: str, limit: int) -> list[Row]:
        """The newest main-line turns of the newest sessions, searched among more turns until there are
        enough."""
        most, looked = limit * TURNS_PER_SESSION, limit
        while True:
            rows = self._database.rows(
                f"{RECENT} WHERE t.kind = 'main' AND t.scope = ? ORDER BY t.seq DESC LIMIT ?", (scope, looked)
            )
            newest = dict[str, Row]()
            for row in rows:
                newest.setdefault(row["session"], row)
            if len(newest) >= limit or len(rows) < looked or looked >= most:
                return list(newest.values())[:limit]
            looked = min(2 * looked, most)

    def _remember(self, turn: RecordedTurn, shape: str | None, client_session: bytes | None) -> None:
        """A conversation begins: the next request of its scope is compared with it."""
        if turn.conversation.characters <= LONGEST_BEGUN:
            self._begun[turn.id] = turn, shape, client_session
            if len(self._begun) > MOST_BEGUN:
                del self._begun[next(iter(self._begun))]

    def _read_recent(self, turn: str) -> Recent:
        if turn not in self._begun:
            return self._read_stored(turn)
        begun, shape, client_session = self._begun.pop(turn)
        return _recent(
            turn,
            begun.session,
            [(message.role, read_message(message).text) for message in begun.conversation.messages],
            read_message(begun.message).text,
            shape=_shape(shape),
            begins=True,
            client_session=client_session,
        )

    def _read_stored(self, turn: str) -> Recent:
        (row,) = self._database.rows(
            "SELECT t.seq, t.session, t.client_session, t.parent, c.shape, c.message"
            " FROM contents c JOIN turns t USING (seq) WHERE t.id = ?",
            (turn,),
        )
        whole = whole_values(self._database, (row["seq"],))[row["seq"]]
        messages = orjson.loads(whole["conversation"])["messages"]
        first = len(messages) - LAST_MESSAGES
        texts = [
            (message["role"], plain_text(Message.from_dict(message)))
            for index, message in enumerate(messages)
            if index >= first or message["role"] == "user"
        ]
        return _recent(
            turn,
            row["session"],
            texts,
            plain_text(unpack_message(row["message"])),
            shape=_shape(row["shape"]),
            begins=row["parent"] is None,
            client_session=row["client_session"],
        )


def _candidate(row: Row, reply: _Reply | None = None, *, newest: bool = False) -> Candidate:
    return read(
        Candidate,
        row,
        reply=None if reply is None else reply.text,
        said=() if reply is None else reply.segments,
        shape=_shape(row["shape"]),
        newest=newest,
    )


def _recent(
    turn: str,
    session: str,
    texts: Sequence[tuple[str, str]],
    reply: str,
    *,
    shape: Shape | None,
    begins: bool,
    client_session: bytes | None,
) -> Recent:
    """`texts`: with their roles, of all user messages and of the last `LAST_MESSAGES`."""
    asked = (text[:LONGEST_TEXT] for role, text in texts if role == "user")
    last = (text for role, text in texts[-LAST_MESSAGES:] if role not in SYSTEM)
    return Recent(
        session=session,
        turn=turn,
        texts=(*last, reply),
        asked=tuple(text for text in asked if text),
        shape=shape,
        begins=begins,
        client_session=client_session,
    )


def _bytes_of_reply(turn: tuple[int, str], reply: _Reply) -> int:
    return 4 * len(reply.text) + 4 * sum(len(part) for parts in reply.segments for part in parts)


def _bytes_of_recent(turn: str, recent: Recent) -> int:
    return sum(4 * len(text) + 64 for text in (*recent.texts, *recent.asked))


@lru_cache(maxsize=256)
def _shape(line: str | None) -> Shape | None:
    """Cached: the turns of a session nearly all have one shape."""
    return None if line is None else Shape.read(line)
