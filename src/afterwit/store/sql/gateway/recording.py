"""The port's `Recording` in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from afterwit.core.adapters import SHARED
from afterwit.core.binding import Shape
from afterwit.core.lifecycle import REOPENED_ON_MAIN_LINE, Reason, State
from afterwit.core.message import Message
from afterwit.core.turn import Kind, RecordedTurn, Turn
from afterwit.core.verdict import Feedback
from afterwit.store.records import FeedbackOutcome
from afterwit.store.sql.database import Database
from afterwit.store.sql.gateway.recent import SqlRecent
from afterwit.store.sql.rows.codec import content_columns, identity_columns, pack_messages
from afterwit.store.sql.rows.growing import GrowingColumns
from afterwit.store.sql.rows.turn_state import TurnState, move, skip_open, turn_state_of


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
