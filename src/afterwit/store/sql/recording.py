"""The port's `Recording` in SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import NamedTuple

import orjson

from afterwit.adapters import SHARED
from afterwit.binding.request import plain_text
from afterwit.binding.request import read_message as read_for_binding
from afterwit.binding.stored import LONG_REPLY, LONGEST, Branch, Candidate, Recent, Shape
from afterwit.byte_cache import Kept
from afterwit.errors import TurnNotFound
from afterwit.lifecycle import REOPENED_ON_MAIN_LINE, Reason, State
from afterwit.message import SYSTEM, Message
from afterwit.store.records import FeedbackOutcome
from afterwit.store.sql.database import Component, Database, Row, marks
from afterwit.store.sql.growing import GrowingColumns, whole_values
from afterwit.store.sql.rows import content_columns, identity_columns, pack_messages, read_message
from afterwit.store.sql.turn_state import TurnState, move, skip_open, turn_state_of
from afterwit.turn import Kind, RecordedTurn, Turn
from afterwit.verdict import Feedback


class SqlRecent(Component):
    """A part of the port's `ParentLookup` in SQL."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._recents = Kept(self._read_recent, most_bytes=MOST_KEPT_BYTES, size=_size)
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


class SqlRecording(SqlRecent):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._growing = GrowingColumns(database)

    def binding(self, scope: str) -> AbstractContextManager[None]:
        return self._alone_in(scope)

    @contextmanager
    def _alone_in(self, scope: str) -> Iterator[None]:
        with self._database.transaction():
            self._database.hold(f"scope {scope}")
            yield

    def add_turn(
        self,
        turn: RecordedTurn,
        *,
        prompt_hash: bytes,
        full_hash: bytes,
        depth: int,
        full_depth: int,
        delivered: bool,
        reason: Reason | None,
        now: float,
        shape: Shape | None = None,
        client_session: bytes | None = None,
        supersedes: str | None = None,
    ) -> None:
        columns = identity_columns(turn)
        columns |= {
            "client_session": client_session,
            "prompt_hash": prompt_hash,
            "full_hash": full_hash,
            "depth": depth,
            "full_depth": full_depth,
            "delivered": int(delivered),
            "state": State.OPEN.value if reason is None else State.SKIPPED.value,
            "reason": None if reason is None else reason.value,
            "moved_at": now,
            "recorded": now,
            "adapter": turn.adapter if isinstance(turn, Turn) else SHARED,
        }
        line = None if shape is None else str(shape)
        content = content_columns(turn)
        content["shape"] = line
        with self._database.transaction():
            begins = turn.session == turn.id  # nobody can have excluded it
            if reason is None and not begins and self._is_excluded(turn.session):
                columns |= {"state": State.SKIPPED.value, "reason": Reason.EXCLUDED.value}
            self._growing.add(columns, content, parent=turn.parent)
            if turn.parent is None:
                self._begun(turn, line, client_session)
            if supersedes is not None:
                self.supersede(supersedes, turn.id, now=now)

    def _is_excluded(self, session: str) -> bool:
        sql = "SELECT 1 FROM excluded WHERE session = ?"
        return self._database.row(sql, (session,)) is not None

    def delivered(self, turns: Iterable[str]) -> None:
        with self._database.transaction():
            for turn in turns:
                self._database.execute("UPDATE turns SET delivered = 1 WHERE id = ?", (turn,))

    def answer(self, turn: str, messages: Sequence[Message], *, answered_by: str | None, now: float) -> State:
        packed = pack_messages(messages)
        with self._database.transaction():
            current = turn_state_of(self._database, turn)
            known = self._database.row("SELECT messages FROM next_states WHERE seq = ?", (current.seq,))
            if known is not None and known["messages"] == packed:
                return current.state
            row = {"seq": current.seq, "messages": packed, "answered_by": answered_by, "at": now}
            self._database.put("next_states", row, key="seq")
            return self._heard(current, now)

    def feedback(self, turn: str, feedback: Feedback, *, now: float) -> FeedbackOutcome:
        with self._database.transaction():
            current = turn_state_of(self._database, turn)
            row = {"seq": current.seq, "reward": feedback.reward, "words": feedback.text, "at": now}
            self._database.insert("feedback", row)
            state = self._heard(current, now)
        return FeedbackOutcome(turn=turn, state=state, trains=current.takes_next_state(now))

    def _heard(self, current: TurnState, now: float) -> State:
        """The next state changed: count it, and have the turn judged if it still can be."""
        self._database.execute("UPDATE turns SET revision = revision + 1 WHERE seq = ?", (current.seq,))
        if current.state is State.ANSWERED or not current.takes_next_state(now):
            return current.state
        move(self._database, current, State.ANSWERED, now=now)
        return State.ANSWERED

    def supersede(self, turn: str, by: str, *, now: float) -> None:
        with self._database.transaction():
            current = turn_state_of(self._database, turn)
            self._database.execute("UPDATE turns SET superseded_by = ? WHERE seq = ?", (by, current.seq))
            if current.state not in (State.TRAINED, State.SKIPPED):
                move(self._database, current, State.SKIPPED, now=now, reason=Reason.SUPERSEDED)

    def set_kind(self, turn: str, kind: Kind, *, session: str | None = None, now: float) -> State:
        with self._database.transaction():
            self._database.execute(
                "UPDATE turns SET kind = ?, session = coalesce(?, session) WHERE id = ?",
                (kind, session, turn),
            )
            current = turn_state_of(self._database, turn)
            if kind is Kind.MAIN:
                return self._found_main(current, now)
            if current.state in (State.TRAINED, State.SKIPPED):
                return current.state
            reason = Reason.SIDE_TURN if kind is Kind.SIDE else Reason.UNKNOWN_BRANCH
            move(self._database, current, State.SKIPPED, now=now, reason=reason)
            return State.SKIPPED

    def _found_main(self, current: TurnState, now: float) -> State:
        if current.reason not in REOPENED_ON_MAIN_LINE or not current.revision:
            return current.state
        move(self._database, current, State.ANSWERED, now=now)
        return State.ANSWERED

    def end_session(self, session: str, *, now: float) -> int:
        return skip_open(self._database, "session = ?", session, now=now)


FIRST_HASHES = 4
"""Prefix hashes looked up first, the deepest ones; then twice as many, and so on. A request's parent nearly
always ends a message or two before the request does."""


ANSWERED = "EXISTS (SELECT 1 FROM next_states n WHERE n.seq = t.seq) AS answered"


CHILDREN = "EXISTS (SELECT 1 FROM turns child WHERE child.parent = t.id AND child.kind <> 'side')"
"""Whether the turn that a query calls `t` has any."""


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
        return _Reply(plain_text(said), read_for_binding(said).segments)

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


UNKNOWN = "(SELECT max(u.seq) FROM turns u WHERE u.session = t.session AND u.kind = 'unknown')"
"""The newest turn of the same session that may or may not be on its main line."""


class _AtHand(NamedTuple):
    """A conversation that began, as it was stored."""

    messages: Sequence[Message]
    reply: Message
    session: str
    shape: str | None
    client_session: bytes | None


def _recent_begun(turn: str, begun: _AtHand) -> Recent:
    return _recent(
        turn,
        [(message.role, read_for_binding(message).text) for message in begun.messages],
        session=begun.session,
        reply=read_for_binding(begun.reply).text,
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


def _size(turn: str, recent: Recent) -> int:
    return sum(4 * len(text) + 64 for text in (*recent.texts, *recent.asked))


def shape_of(row: Row) -> Shape | None:
    return None if row["shape"] is None else read_shape(row["shape"])


@lru_cache(maxsize=256)
def read_shape(line: str) -> Shape:
    """Read once: the turns of a session are nearly all made alike."""
    return Shape.read(line)
