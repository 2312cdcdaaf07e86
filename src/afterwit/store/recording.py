"""New turns, and what follows earlier ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from afterwit.adapters import SHARED
from afterwit.binding.request import Shape
from afterwit.lifecycle import REOPENED_ON_MAIN_LINE, Reason, State
from afterwit.message import Message
from afterwit.store.database import Database
from afterwit.store.lookup import ParentLookup
from afterwit.store.moves import TurnState, move, skip_open, turn_state_of
from afterwit.store.prefix_delta import DeltaWriter
from afterwit.store.records import FeedbackOutcome
from afterwit.store.rows import content_columns, identity_columns, pack_messages
from afterwit.turn import Kind, RecordedTurn, Turn
from afterwit.verdict import Feedback


class Recording(ParentLookup):
    """Written by the gateway."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._writer = DeltaWriter(database)

    @contextmanager
    def binding(self, scope: str) -> Iterator[None]:
        """While the body runs, no other gateway binds requests of this scope, so a lookup still holds when
        the decision is stored."""
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
        """Store a turn as OPEN, or as SKIPPED if there is a `reason` already.

        `client_session` is the hash of the client's own session id. `supersedes` is the earlier turn that
        this one retries; it is recorded with the turn or not at all. Raises StoreError if the id is taken.
        """
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
            "adapter": turn.adapter if isinstance(turn, Turn) else SHARED,
        }
        content = content_columns(turn)
        content["shape"] = None if shape is None else str(shape)
        with self._database.transaction():
            begins = turn.session == turn.id  # no one can have excluded it yet
            if reason is None and not begins and self._is_excluded(turn.session):
                columns |= {"state": State.SKIPPED.value, "reason": Reason.EXCLUDED.value}
            self._writer.add(columns, content, parent=turn.parent)
            if turn.parent is None:
                self._remember(turn, content["shape"], client_session)
            if supersedes is not None:
                self.supersede(supersedes, turn.id, now=now)

    def _is_excluded(self, session: str) -> bool:
        return self._database.row("SELECT 1 FROM excluded WHERE session = ?", (session,)) is not None

    def delivered(self, turns: Iterable[str]) -> None:
        """The clients got the whole responses."""
        with self._database.transaction():
            for turn in turns:
                self._database.execute("UPDATE turns SET delivered = 1 WHERE id = ?", (turn,))

    def answer(self, turn: str, messages: Sequence[Message], *, answered_by: str | None, now: float) -> State:
        """Record what followed a turn; returns the state it is in now.

        A turn that can still learn from it becomes ANSWERED. The same messages a second time change nothing.
        A turn that was trained, or that the learner holds, keeps its state.
        """
        packed = pack_messages(messages)
        with self._database.transaction():
            current = turn_state_of(self._database, turn)
            known = self._database.row("SELECT messages FROM next_states WHERE seq = ?", (current.seq,))
            if known is not None and known["messages"] == packed:
                return current.state
            row = {"seq": current.seq, "messages": packed, "answered_by": answered_by, "at": now}
            self._database.put("next_states", row, key="seq")
            return self._next_state_changed(current, now)

    def feedback(self, turn: str, feedback: Feedback, *, now: float) -> FeedbackOutcome:
        """Record explicit feedback; the newest counts. Raises TurnNotFound."""
        with self._database.transaction():
            current = turn_state_of(self._database, turn)
            row = {"seq": current.seq, "reward": feedback.reward, "words": feedback.text, "at": now}
            self._database.insert("feedback", row)
            state = self._next_state_changed(current, now)
        return FeedbackOutcome(turn=turn, state=state, trains=current.takes_next_state(now))

    def _next_state_changed(self, current: TurnState, now: float) -> State:
        self._database.execute("UPDATE turns SET revision = revision + 1 WHERE seq = ?", (current.seq,))
        if current.state is State.ANSWERED or not current.takes_next_state(now):
            return current.state
        move(self._database, current, State.ANSWERED, now=now)
        return State.ANSWERED

    def supersede(self, turn: str, by: str, *, now: float) -> None:
        """The turn `by` retries this one, which ends unless it already trained or ended."""
        with self._database.transaction():
            current = turn_state_of(self._database, turn)
            self._database.execute("UPDATE turns SET superseded_by = ? WHERE seq = ?", (by, current.seq))
            if not current.ended:
                move(self._database, current, State.SKIPPED, now=now, reason=Reason.SUPERSEDED)

    def set_kind(self, turn: str, kind: Kind, *, session: str | None = None, now: float) -> State:
        """Correct a turn's kind, and its session if one is given; returns its state.

        Off the main line it ends; on it, it may train.
        """
        with self._database.transaction():
            self._database.execute(
                "UPDATE turns SET kind = ?, session = coalesce(?, session) WHERE id = ?",
                (kind, session, turn),
            )
            current = turn_state_of(self._database, turn)
            if kind is Kind.MAIN:
                if current.reason not in REOPENED_ON_MAIN_LINE or not current.revision:
                    return current.state
                move(self._database, current, State.ANSWERED, now=now)
                return State.ANSWERED
            if current.ended:
                return current.state
            reason = Reason.SIDE_TURN if kind is Kind.SIDE else Reason.UNKNOWN_BRANCH
            move(self._database, current, State.SKIPPED, now=now, reason=reason)
            return State.SKIPPED

    def end_session(self, session: str, *, now: float) -> int:
        """Skip the session's OPEN turns; returns how many. A late reply or feedback reopens them."""
        return skip_open(self._database, "session = ?", session, now=now)
