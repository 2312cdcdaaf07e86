"""New turns, and what follows earlier ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

import orjson

from afterwit.binding.request import Shape
from afterwit.lifecycle import REOPENED_ON_MAIN_LINE, Reason, State
from afterwit.store.database import Database
from afterwit.store.lookup import ParentLookup
from afterwit.store.moves import TurnState
from afterwit.store.prefix_delta import DeltaWriter
from afterwit.store.rows import content_columns, identity_columns
from afterwit.turn import SHARED, Kind, Message, RecordedTurn, Turn
from afterwit.verdict import Feedback


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
            columns = identity_columns(turn) | {
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
        A turn that was trained, or that the learner holds, keeps its state.
        """
        packed = orjson.dumps([message.to_dict() for message in messages])
        with self._db.transaction():
            current = self._state(turn)
            known = self._db.value("SELECT messages FROM next_states WHERE seq = ?", (current.seq,))
            if known == packed:
                return current.state
            row = {"seq": current.seq, "messages": packed, "answered_by": answered_by, "at": now}
            self._db.put("next_states", row, key="seq")
            return self._next_state_changed(current, now)

    def feedback(self, turn: str, feedback: Feedback, *, now: float) -> tuple[State, bool]:
        """Record explicit feedback; the newest counts. Returns the turn's state, and whether it is judged
        again with it: if not, it is only recorded. Raises TurnNotFound."""
        with self._db.transaction():
            current = self._state(turn)
            row = {"seq": current.seq, "reward": feedback.reward, "words": feedback.text, "at": now}
            self._db.insert("feedback", row)
            return self._next_state_changed(current, now), current.takes_next_state(now)

    def _next_state_changed(self, current: TurnState, now: float) -> State:
        self._db.execute("UPDATE turns SET revision = revision + 1 WHERE seq = ?", (current.seq,))
        if current.state is State.ANSWERED or not current.takes_next_state(now):
            return current.state
        return self._move(current, State.ANSWERED, now)

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
