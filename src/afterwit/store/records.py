"""Data classes that the store returns, in addition to the nouns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from afterwit.lifecycle import Reason, State
from afterwit.promotion.suite import SuiteResult
from afterwit.turn import SHARED, Kind, Message, RecordedTurn, Turn
from afterwit.verdict import Flag, NextState, Verdict
from afterwit.version import Effect, Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A turn, with everything that happened to it since."""

    seq: int
    """The order of arrival. A page of turns continues after it."""
    turn: RecordedTurn
    state: State
    reason: Reason | None
    """Why it was skipped; None in every other state."""
    delivered: bool
    """Whether the client got the whole response."""
    superseded_by: str | None
    next_state: NextState | None
    revision: int
    """Counts the changes of the next state."""
    verdict: Verdict | None
    rl: bool
    opd: bool
    """The terms of the loss that the verdict gives the turn."""
    trained_in: tuple[int, ...]
    """The versions it was trained in as a new turn, oldest first."""
    replayed_in: tuple[int, ...]
    owner: str | None
    attempts: int
    """Failed attempts at the next step."""
    retry_at: float
    error: str | None
    """The message of the last failed attempt."""
    flags: tuple[Flag, ...] = ()
    accepted: bool | None = None
    """A person's review of the verdict; None: not reviewed."""

    @property
    def sampled_turn(self) -> Turn:
        """The turn, which was sampled here. Raises ValueError for an imported one."""
        if not isinstance(self.turn, Turn):
            raise ValueError(f"turn {self.turn.id} was not sampled here")
        return self.turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A choice of turns; None: any."""

    session: str | None = None
    state: State | None = None
    reason: Reason | None = None
    kind: Kind | None = None
    practised: bool | None = None
    """Whether they are answers that practised a lesson."""
    scope: str | None = None
    version: int | None = None
    """Only turns that this version trained on as new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLine:
    """A turn without its conversation."""

    seq: int
    turn: str
    session: str
    scope: str
    kind: Kind
    created: float
    imported: bool
    state: State
    reason: Reason | None
    error: str | None
    message: Message
    reward: int | None
    """None: not judged."""
    hints: tuple[str, ...]
    trained_in: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A turn in which words were found."""

    line: TurnLine
    text: str
    """The text of the person or the model around the first of the words, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The turns in which words were found, the newest first."""

    hits: tuple[Hit, ...]
    read: int
    since: float | None
    """When the oldest of these was asked; None: there was none to read."""
    before: int | None
    """The place at which the search continues; None: all were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLine:
    """A session, counted over its main turns."""

    seq: int
    """Of its newest main turn."""
    session: str
    scope: str
    begun: float
    newest: float
    """When its first and its newest turn were requested, in seconds since the epoch."""
    turns: int
    good: int
    bad: int
    """Turns with a reward of 1 and of -1."""
    hinted: int
    trained: int
    asked: str | None
    """The last user message before its first turn; None if that is not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A source, counted over its turns."""

    source: str
    turns: int
    good: int
    bad: int
    hinted: int
    waiting: int
    """Turns that wait for the learner or a person."""
    trained: int


class ReviewOutcome(StrEnum):
    """The effect of a person's review of a turn, and `words` about it."""

    words: str

    def __new__(cls, value: str, words: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_, member.words = value, words
        return member

    ACCEPTED = "accepted", "accepted: it may train"
    REFUSED = "refused", "refused: it does not train"
    IN_UPDATE = "in_update", "an update is training it: nothing changed"
    TRAINED = "trained", "it has trained already: nothing changed; `afterwit rollback` takes it back"
    NOT_WAITING = "not_waiting", "it has no verdict that could train: nothing changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """The effect of excluding a session."""

    ended: int
    """Turns that would have trained or might have."""
    trained: tuple[int, ...]
    """Versions that trained on its turns before, oldest first."""
    in_update: int
    """Turns that train at this moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of turns by state, and of skipped turns by reason. Zeros are left out."""

    states: Mapping[State, int] = field(default_factory=dict)
    reasons: Mapping[Reason, int] = field(default_factory=dict)
    invalid_votes: int = 0
    """Votes of the judge that could not be read, or whose hint was rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    """A version, without its files."""

    number: int
    parent: int | None
    origin: Origin
    created: float
    restores: int | None
    reverts: tuple[int, ...]
    metrics: Mapping[str, float]
    committed_at: float
    published_at: float | None
    trained: int
    """Number of turns that it trained on as new ones."""
    replayed: int
    suite: SuiteResult | None = None
    """How much of what people had approved it lost; None: not measured."""
    adapter: str = SHARED


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedTurn:
    """A turn that a version was trained on."""

    version: int
    turn: str
    replayed: bool
    """Whether it had trained before."""
    effect: Effect | None
    """How the update changed it; None: not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """The effect of reconciling with the checkpoint folder."""

    committed: tuple[int, ...]
    """Versions whose manifests the store did not know."""
    lost: tuple[int, ...]
    """Versions that the store knew and that are gone, with all their descendants."""
    returned: int
    """Turns of lost versions that wait to be trained again."""
    freed: tuple[str, ...]
    """Turns that a dead learner held, in an update that no manifest names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOrder:
    """A session that is to be forgotten."""

    session: str
    replay: bool
    """Whether later updates are run again without it; else they are reverted."""
    at: float
    error: str | None
    """Why it cannot be carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A person's order to stop learning."""

    since: float
    words: str
    """Why; may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A stage's health, as it reported it."""

    stage: str
    machine: str = ""
    """The machine that it runs on, if the store is shared."""
    ok: bool
    message: str
    at: float

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.stage} on {self.machine}" if self.machine else self.stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key. The key itself is never stored."""

    name: str
    scopes: frozenset[str]
    hash: str
    created: float
    revoked: float | None = None


def summary(record: Record) -> dict[str, Any]:
    """The fields that a list of turns shows."""
    turn, verdict = record.turn, record.verdict
    return {
        "id": turn.id,
        "session": turn.session,
        "parent": turn.parent,
        "kind": turn.kind.value,
        "state": record.state.value,
        "reason": record.reason and record.reason.value,
        "imported": not isinstance(turn, Turn),
        "versions": sorted(set(turn.sampled.versions)) if isinstance(turn, Turn) else [],
        "trained_in": list(record.trained_in),
        "created": turn.created,
        "next_state": record.next_state and next_state(record.next_state),
        "reward": None if verdict is None else verdict.reward,
        "hints": [] if verdict is None else list(verdict.hints),
    }


def whole(record: Record) -> dict[str, Any]:
    """Everything stored about a turn, ids and log-probs included; an imported turn has none of these."""
    turn, verdict = record.turn, record.verdict
    return summary(record) | {
        "scope": turn.scope,
        "model": turn.model,
        "teaches": turn.teaches,
        "conversation": turn.conversation.to_dict(),
        "response": turn.message.to_dict(),
        "finish": turn.finish.value,
        **(_sampled(turn) if isinstance(turn, Turn) else {}),
        "delivered": record.delivered,
        "superseded_by": record.superseded_by,
        "source": None if verdict is None else verdict.source.value,
        "votes": [] if verdict is None else [asdict(vote) for vote in verdict.votes],
        "rl": record.rl,
        "opd": record.opd,
        "replayed_in": list(record.replayed_in),
    }


def _sampled(turn: Turn) -> dict[str, Any]:
    return {
        "sampling": asdict(turn.sampling),
        "prompt_ids": list(turn.prompt_ids),
        "ids": list(turn.sampled.ids),
        "logprobs": list(turn.sampled.logprobs),
        "token_versions": list(turn.sampled.versions),
        "forced": list(turn.sampled.forced),
        "basis": turn.sampled.basis.value,
    }


def next_state(state: NextState) -> dict[str, Any]:
    feedback = None if state.feedback is None else asdict(state.feedback)
    return {"messages": [message.to_dict() for message in state.messages], "feedback": feedback}
