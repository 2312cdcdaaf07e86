"""New turns: the earlier turns that a request may follow, the turn itself, and what follows it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import chain

import orjson

from afterwit.binding.evidence import LONG_REPLY, LONGEST_TEXT, Candidate, Recent
from afterwit.binding.request import Shape, plain_text, read_message
from afterwit.byte_cache import ByteCache
from afterwit.errors import TurnNotFound
from afterwit.lifecycle import REOPENED_ON_MAIN_LINE, Reason, State
from afterwit.store.database import ALL, Database, Row, marks
from afterwit.store.moves import Part, TurnState
from afterwit.store.rows import (
    DeltaWriter,
    content_columns,
    first_columns,
    read,
    unpack_message,
    whole_values,
)
from afterwit.turn import SYSTEM, Kind, Message, RecordedTurn
from afterwit.verdict import Feedback

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

RECENT = """
    SELECT t.seq, t.id, t.session, c.conversation_shared + length(c.conversation) AS size,
        (SELECT max(u.seq) FROM turns u WHERE u.session = t.session AND u.kind = 'unknown') AS unknown
    FROM turns t LEFT JOIN contents c USING (seq)
"""
"""`unknown` is the session's newest turn that may or may not be on its main line."""

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

Reply = tuple[str, tuple[tuple[str, ...], ...]]
"""The text of a turn's reply as it is compared, and the parts of its segments."""


class ParentLookup(Part):
    """Read-only. Side turns are never counted as children."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._equal = " UNION ".join(f"SELECT x.seq FROM wanted {database.EACH.format(one)}" for one in EQUAL)
        # by `seq` and id: a number is reused if the newest turns were deleted
        self._replies = ByteCache(
            self._read_reply,
            most_bytes=MOST_REPLY_BYTES,
            size=lambda turn, reply: 4 * sum(map(len, (reply[0], *chain(*reply[1])))),
        )
        self._recents = ByteCache(
            self._read_recent,
            most_bytes=MOST_RECENT_BYTES,
            size=lambda place, recent: sum(4 * len(text) + 64 for text in (*recent.texts, *recent.asked)),
        )
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
            named = self._db.rows(
                f"{CANDIDATE} WHERE t.id IN ({marks(len(turn_ids))}) AND t.scope = ?"
                " AND coalesce(t.client_session = ?, true)",
                (*turn_ids, scope, client_session),
            )
            found |= {row["turn"]: row for row in named}
        own, values, newest = "", tuple[bytes, ...](), dict[str, Row]()
        if client_session is not None:
            own, values = " AND t.client_session = ?", (client_session,)
            where = f"t.scope = ? AND t.kind = 'main'{own} ORDER BY t.seq DESC LIMIT 1"
            rows = self._db.rows(f"{CANDIDATE} WHERE {where}", (scope, *values))
            newest = {row["turn"]: row for row in rows}
        quoted = (
            f"t.kind = 'side' AND t.scope = ? AND length(c.message) >= ?{own} ORDER BY t.seq DESC LIMIT ?"
        )
        sides = self._db.rows(f"{CANDIDATE} WHERE {quoted}", (scope, LONG_REPLY, *values, side_limit))
        found |= newest
        for row in sides:
            found.pop(row["turn"], None)
        plain = [_candidate(row, newest=turn in newest) for turn, row in found.items()]
        return plain + [_candidate(row, self._replies((row["seq"], row["turn"]))) for row in sides]

    def _by_hash(self, scope: str, hashes: Sequence[bytes], equal_limit: int) -> Iterator[Row]:
        """Deepest first, until a turn is found whose prompt and response the request contains."""
        end, size = len(hashes), FIRST_HASHES
        while end > 0:
            part = hashes[max(0, end - size) : end]
            end, size = end - size, 2 * size
            wanted = ", ".join("(?)" for _ in part)
            sql = f"WITH wanted(hash) AS (VALUES {wanted}) {CANDIDATE} WHERE t.seq IN ({self._equal})"
            rows = self._db.rows(sql, (*part, scope, equal_limit, scope, equal_limit))
            yield from rows
            if any(row["full_hash"] in part and row["full_depth"] > row["depth"] for row in rows):
                return

    def replies(self, scope: str, sessions: Collection[str], *, limit: int = 32) -> list[Candidate]:
        """The newest turns of these sessions with their replies; side turns and practice left out."""
        rows = self._db.rows(
            f"{CANDIDATE} WHERE t.session IN ({marks(len(sessions))}) AND t.scope = ?"
            " AND t.kind NOT IN ('side', 'practice') AND c.seq IS NOT NULL ORDER BY t.seq DESC LIMIT ?",
            (*sessions, scope, limit),
        )
        return [_candidate(row, self._replies((row["seq"], row["turn"]))) for row in rows]

    def _read_reply(self, turn: tuple[int, str]) -> Reply:
        message = unpack_message(self._db.value("SELECT message FROM contents WHERE seq = ?", turn[:1]))
        return plain_text(message), read_message(message).segments

    def candidate(self, turn: str) -> Candidate | None:
        """A turn as one among its siblings; None if it is not stored."""
        row = self._db.row(f"{SIBLING} WHERE t.id = ?", (turn,))
        return None if row is None else _candidate(row)

    def children(self, parent: str, *, limit: int = 32) -> list[Candidate]:
        """The newest `limit` of a turn's children, oldest first; side, retried and abandoned turns left out.

        The limit keeps requests fast if a client regenerates a response forever.
        """
        rows = self._db.rows(
            f"{SIBLING} WHERE t.parent = ? AND t.superseded_by IS NULL AND t.kind <> 'side'"
            " AND coalesce(t.reason, '') NOT IN ('superseded', 'client_left') ORDER BY t.seq DESC LIMIT ?",
            (parent, limit),
        )
        return [_candidate(row) for row in reversed(rows)]

    def recent(self, scope: str, *, limit: int = 16) -> list[Recent]:
        """The scope's most recently continued conversations.

        One with a branch that may or may not be the main line comes a second time, as of that branch.
        """
        newest, looked = dict[str, Row](), limit
        while True:  # among more turns, until there are enough sessions
            rows = self._db.rows(
                f"{RECENT} WHERE t.kind = 'main' AND t.scope = ? ORDER BY t.seq DESC LIMIT ?", (scope, looked)
            )
            for row in rows:
                newest.setdefault(row["session"], row)
            if len(newest) >= limit or len(rows) < looked or looked >= limit * TURNS_PER_SESSION:
                break
            looked = min(2 * looked, limit * TURNS_PER_SESSION)
        found = list(newest.values())[:limit]
        if unknown := [row["unknown"] for row in found if row["unknown"] is not None]:
            branches = self._db.rows(f"{RECENT} WHERE t.seq IN ({marks(len(unknown))})", unknown)
            found = sorted([*found, *branches], key=lambda row: int(row["seq"]), reverse=True)
        small = [row for row in found if (row["size"] or ALL) <= LARGEST_CONVERSATION]
        return [self._recents((row["session"], row["id"])) for row in small]

    def _remember(self, turn: RecordedTurn, shape: str | None, client_session: bytes | None) -> None:
        """A conversation begins: the next request of its scope is compared with it."""
        if turn.conversation.characters <= LONGEST_BEGUN:
            self._begun[turn.id] = turn, shape, client_session
            if len(self._begun) > MOST_BEGUN:
                del self._begun[next(iter(self._begun))]

    def _read_recent(self, place: tuple[str, str]) -> Recent:
        """By session and turn: a branch may become a session of its own."""
        session, turn = place
        if turn in self._begun:
            begun, shape, client_session = self._begun.pop(turn)
            parent = None
            texts = [(each.role, read_message(each).text) for each in begun.conversation.messages]
            reply = read_message(begun.message).text
        else:
            (row,) = self._db.rows(
                "SELECT t.seq, t.client_session, t.parent, c.shape, c.message"
                " FROM contents c JOIN turns t USING (seq) WHERE t.id = ?",
                (turn,),
            )
            parent, shape, client_session = row["parent"], row["shape"], row["client_session"]
            whole = whole_values(self._db, (row["seq"],))[row["seq"]]
            messages = orjson.loads(whole["conversation"])["messages"]
            first = len(messages) - LAST_MESSAGES
            texts = [
                (message["role"], plain_text(Message.from_dict(message)))
                for index, message in enumerate(messages)
                if index >= first or message["role"] == "user"
            ]
            reply = plain_text(unpack_message(row["message"]))
        asked = (text[:LONGEST_TEXT] for role, text in texts if role == "user")
        last = (text for role, text in texts[-LAST_MESSAGES:] if role not in SYSTEM)
        return Recent(
            session=session,
            turn=turn,
            texts=(*last, reply),
            asked=tuple(text for text in asked if text),
            shape=_shape(shape),
            begins=parent is None,
            client_session=client_session,
        )


def _candidate(row: Row, reply: Reply | None = None, *, newest: bool = False) -> Candidate:
    text, segments = reply or (None, ())
    return read(Candidate, row, reply=text, said=segments, shape=_shape(row["shape"]), newest=newest)


@lru_cache(maxsize=256)
def _shape(line: str | None) -> Shape | None:
    """Cached: the turns of a session nearly all have one shape."""
    return None if line is None else Shape.read(line)


class Recording(ParentLookup):
    """Written by the gateway."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._writer = DeltaWriter(database)

    def binding(self, scope: str) -> AbstractContextManager[None]:
        """While the body runs, no other gateway binds requests of this scope, so a lookup still holds when
        the decision is stored."""
        return self._db.holding(f"scope {scope}")

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
        """Store a turn as OPEN, or as SKIPPED if there is a `reason` already.

        `client_session` is the hash of the client's own session id. `supersedes` is the earlier turn that
        this one retries; it is recorded with the turn or not at all. Raises StoreError if the id is taken.
        """
        content = content_columns(turn)
        content["shape"] = None if shape is None else str(shape)
        with self._db.transaction():
            begins = turn.session == turn.id  # no one can have excluded it yet
            excluded = "SELECT 1 FROM excluded WHERE session = ?"
            if reason is None and not begins and self._db.row(excluded, (turn.session,)) is not None:
                reason = Reason.EXCLUDED
            columns = first_columns(turn, waits=State.OPEN, reason=reason, now=now) | {
                "client_session": client_session,
                "prompt_hash": prompt_hash,
                "full_hash": full_hash,
                "depth": depth,
                "full_depth": full_depth,
                "delivered": int(delivered),
            }
            self._writer.add(columns, content, parent=turn.parent)
            if turn.parent is None:
                self._remember(turn, content["shape"], client_session)
            if supersedes is not None:
                self.supersede(supersedes, turn.id, now=now)

    def delivered(self, turns: Iterable[str]) -> None:
        """The clients got the whole responses."""
        with self._db.transaction():
            for turn in turns:
                self._db.execute("UPDATE turns SET delivered = 1 WHERE id = ?", (turn,))

    def answer(self, turn: str, messages: Sequence[Message], *, answered_by: str | None, now: float) -> State:
        """Record what followed a turn; returns the state it is in now.

        A turn that can still learn from it becomes ANSWERED. The same messages a second time change nothing.
        A turn that was trained, or that the learner holds, keeps its state. Of what follows one whose content
        was removed nothing is kept.
        """
        packed = orjson.dumps([message.to_dict() for message in messages])
        with self._db.transaction():
            current = self._state(turn)
            known = self._db.value("SELECT messages FROM next_states WHERE seq = ?", (current.seq,))
            if known == packed or not self._has_content(current):
                return current.state
            row = {"seq": current.seq, "messages": packed, "answered_by": answered_by, "at": now}
            self._db.put("next_states", row, key="seq")
            return self._next_state_changed(current, now)

    def feedback(self, turn: str, feedback: Feedback, *, now: float) -> tuple[State, bool]:
        """Record explicit feedback; the newest reward, words, hint and correction count. Returns the turn's
        state, and whether it is judged again with it: if not, it is only recorded. Raises TurnNotFound, also
        for a turn whose content was removed."""
        with self._db.transaction():
            current = self._state(turn)
            if not self._has_content(current):
                raise TurnNotFound(f"the content of turn {turn} was removed")
            row = {"seq": current.seq, "reward": feedback.reward, "words": feedback.text, "at": now}
            self._db.insert("feedback", row | {"hint": feedback.hint, "correction": feedback.correction})
            return self._next_state_changed(current, now), current.takes_next_state(now)

    def _next_state_changed(self, current: TurnState, now: float) -> State:
        if current.kind is Kind.PRACTICE:  # it has its verdict already
            return current.state
        if current.state is not State.ANSWERED and current.takes_next_state(now):
            return self._move(current, State.ANSWERED, now, revised=True)
        self._db.execute("UPDATE turns SET revision = revision + 1 WHERE seq = ?", (current.seq,))
        return current.state

    def supersede(self, turn: str, by: str, *, now: float) -> None:
        """The turn `by` retries this one, which ends unless it already trained or ended."""
        with self._db.transaction():
            current = self._state(turn)
            self._db.execute("UPDATE turns SET superseded_by = ? WHERE seq = ?", (by, current.seq))
            if not current.ended:
                self._move(current, State.SKIPPED, now, Reason.SUPERSEDED)

    def set_kind(self, turn: str, kind: Kind, *, session: str | None = None, now: float) -> State:
        """Correct a turn's kind, and its session if one is given; returns its state.

        Off the main line it ends; on it, it may train.
        """
        with self._db.transaction():
            self._db.execute(
                "UPDATE turns SET kind = ?, session = coalesce(?, session) WHERE id = ?",
                (kind, session, turn),
            )
            current = self._state(turn)
            if kind is Kind.MAIN:
                reopens = current.reason in REOPENED_ON_MAIN_LINE and current.revision
                return self._move(current, State.ANSWERED, now) if reopens else current.state
            if current.ended:
                return current.state
            reason = Reason.SIDE_TURN if kind is Kind.SIDE else Reason.UNKNOWN_BRANCH
            return self._move(current, State.SKIPPED, now, reason)

    def end_session(self, session: str, *, now: float) -> int:
        """Skip the session's OPEN turns; returns how many. A late reply or feedback reopens them."""
        return self._skip_open("session = ?", session, now)
