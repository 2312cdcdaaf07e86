"""Turns and sessions as a list shows them: a line each."""

from __future__ import annotations

from dataclasses import dataclass

from afterwit.lifecycle import Reason, State
from afterwit.message import Message
from afterwit.turn import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLine:
    """A turn without its conversation."""

    seq: int
    """The order of arrival. A page of lines continues behind it."""
    turn: str
    session: str
    scope: str
    kind: Kind
    created: float
    """Seconds since the epoch."""
    imported: bool
    """Whether it was not sampled here."""
    state: State
    reason: Reason | None
    error: str | None
    message: Message
    """The response."""
    reward: int | None
    """None: not judged."""
    hints: tuple[str, ...]
    trained_in: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTurn:
    """When what happened to a turn that was trained or skipped. Times are seconds since the epoch."""

    seq: int
    turn: str
    session: str
    kind: Kind
    state: State
    reason: Reason | None
    ended: float
    """When it reached this state. Turns are listed by it, those of one time by `seq`."""
    asked: float
    recorded: float | None
    """When its response was whole; None: it was recorded before this was kept."""
    answered: float | None
    """When what followed it was known last; None: nothing followed."""
    judged: float | None
    reward: int | None
    hinted: bool
    oldest_version: int
    """The version that sampled its oldest token."""
    version: int | None
    """The newest version that trained on it as a new turn; None: no version did."""
    update_began: float | None
    committed: float | None
    published: float | None
    """When that version's update began, was committed and was served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLine:
    """A session, counted over its main turns."""

    seq: int
    """Of its newest main turn. A page of lines continues behind it."""
    session: str
    scope: str
    begun: float
    newest: float
    """When its first and its newest turn were asked for, in seconds since the epoch."""
    turns: int
    good: int
    bad: int
    """Turns with a reward of 1 and of -1."""
    hinted: int
    trained: int
    asked: str | None
    """What a person said last before its first turn; None if that is not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A source, counted over its turns."""

    source: str
    """The key."""
    turns: int
    good: int
    bad: int
    hinted: int
    waiting: int
    """Turns that wait for the learner or a person."""
    trained: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was found of one judged turn."""

    reward: int
    hinted: bool
    version: int
    """The version that sampled its oldest token; 0 for a turn recorded elsewhere."""
    at: float
    """When it was judged."""
