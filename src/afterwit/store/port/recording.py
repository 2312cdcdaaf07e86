"""What the gateway writes, and what it asks to bind a request."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from afterwit.core.binding import Branch, Candidate, Recent, Shape
from afterwit.core.lifecycle import Reason, State
from afterwit.core.message import Message
from afterwit.core.turn import Kind, RecordedTurn
from afterwit.core.verdict import Feedback
from afterwit.store.records import FeedbackOutcome


class Recording(Protocol):
    """New turns, and what is said of earlier ones."""

    def binding(self, scope: str) -> AbstractContextManager[None]:
        """While the body runs, no other gateway binds requests of this scope over the store: what was looked
        up holds until what follows from it is stored."""
        ...

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
        ...

    def delivered(self, turns: Iterable[str]) -> None:
        """The clients got the whole answers."""
        ...

    def answer(self, turn: str, messages: Sequence[Message], *, answered_by: str | None, now: float) -> State:
        """Record what followed a turn, and return the state it is in now.

        A turn that can still learn from it is ANSWERED again. The same messages a second time change nothing.
        A turn that was trained, or that the learner holds, keeps its state.
        """
        ...

    def feedback(self, turn: str, feedback: Feedback, *, now: float) -> FeedbackOutcome:
        """Record explicit feedback; the newest counts. Raises TurnNotFound."""
        ...

    def supersede(self, turn: str, by: str, *, now: float) -> None:
        """The turn `by` is a retry of this one, which ends unless it already trained or ended."""
        ...

    def set_kind(self, turn: str, kind: Kind, *, session: str | None = None, now: float) -> State:
        """Correct a turn's kind, and its session if one is given, and return its state.

        Off the main line it ends; on it, it may train.
        """
        ...

    def end_session(self, session: str, *, now: float) -> int:
        """Skip the session's OPEN turns, and return their number. A late reply or feedback reopens them."""
        ...


class ParentLookup(Protocol):
    """What binding asks. Read-only. Side turns are never counted as children."""

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
        makes irrelevant may be left out. Of turns with an equal hash only the newest `equal_limit` come: a
        prompt that is repeated for ever must not make each request slower. `turn_ids` are the turns that its
        tool-call ids name. The newest `side_limit` side turns of long replies (from `LONG_REPLY` bytes, as
        they are stored) come with them: a compacted conversation may quote one. If the client names its
        sessions, the newest main turn of `client_session` comes too, and none of another session of its.
        """
        ...

    def replies(self, scope: str, sessions: Collection[str], *, limit: int = 32) -> list[Candidate]:
        """The newest turns of these sessions, side turns left out, with their replies."""
        ...

    def recent(self, scope: str, *, limit: int = 16) -> list[Recent]:
        """The conversations of a scope that went on last, with what was said last.

        Those with a branch that may or may not be the main line come a second time, as of that branch.
        """
        ...

    def branch(self, turn: str) -> Branch | None:
        """A turn among its siblings; None if it is not in the store."""
        ...

    def branches(self, parent: str, *, limit: int = 32) -> list[Branch]:
        """The newest `limit` of a turn's children, oldest first: side, retried and abandoned turns left out.

        An answer that is asked for again for ever must not make each request slower.
        """
        ...

    def full_depth(self, turn: str) -> int:
        """Number of segments in a turn's prompt and response. Raises TurnNotFound."""
        ...
