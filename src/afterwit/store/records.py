"""What the store returns, besides core's nouns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from afterwit.adapters import SHARED
from afterwit.lifecycle import Reason, State
from afterwit.promotion.episodes import BadEnd
from afterwit.promotion.suite import SuiteResult
from afterwit.turn import Kind, RecordedTurn, Turn
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
    moved_at: float
    delivered: bool
    """Whether the client got the whole answer."""
    superseded_by: str | None
    next_state: NextState | None
    revision: int
    """Counts the changes of the next state."""
    verdict: Verdict | None
    rl: bool
    opd: bool
    """Which terms of the loss the verdict gives the turn."""
    trained_in: tuple[int, ...]
    """The versions it was trained in as a new turn, oldest first."""
    replayed_in: tuple[int, ...]
    owner: str | None
    attempts: int
    """Failed attempts at the next step."""
    retry_at: float
    error: str | None
    """What the last failed attempt said."""
    flags: tuple[Flag, ...] = ()
    """What is doubtful about the verdict."""
    accepted: bool | None = None
    """What a person said of the verdict; None: nothing."""

    @property
    def sampled_turn(self) -> Turn:
        """The turn, which was sampled here. Raises ValueError for an imported one."""
        if not isinstance(self.turn, Turn):
            raise ValueError(f"turn {self.turn.id} was not sampled here")
        return self.turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which turns to list; None: any."""

    session: str | None = None
    state: State | None = None
    reason: Reason | None = None
    kind: Kind | None = None
    version: int | None = None
    """Only turns that this version trained on as new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackOutcome:
    """What became of feedback."""

    turn: str
    state: State
    trains: bool
    """Whether the turn is judged again with it; False: it is only recorded."""


class ReviewOutcome(StrEnum):
    """What became of a person's review of a turn."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    IN_UPDATE = "in_update"
    """An update trains it at this moment: nothing changed."""
    TRAINED = "trained"
    """It has trained already: nothing changed."""
    NOT_WAITING = "not_waiting"
    """It has no verdict that could train: nothing changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """What became of a session's turns."""

    ended: int
    """Turns that would have trained or might have."""
    trained: tuple[int, ...]
    """Versions that trained on its turns before, oldest first."""
    in_update: int
    """Turns that train at this moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of turns by state, and of skipped turns by reason. Those without a turn are left out."""

    states: Mapping[State, int] = field(default_factory=dict)
    reasons: Mapping[Reason, int] = field(default_factory=dict)
    invalid_votes: int = 0
    """Votes of the judge that could not be read, or whose hint was rejected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    """What the store knows of a version."""

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
    """What it lost of what people had approved; None: it was not asked."""
    adapter: str = SHARED


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOrder:
    """That a session is to be forgotten."""

    session: str
    replay: bool
    """Whether later updates are run again without it; else they are taken back."""
    at: float
    error: str | None
    """Why it cannot be carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedTurn:
    """A turn that a version was trained on."""

    version: int
    turn: str
    replayed: bool
    """Whether it had trained before."""
    effect: Effect | None
    """What the update did to it; None: it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedEpisode:
    """How an episode ended, as the store keeps it."""

    turn: str
    session: str
    source: str
    version: int
    bad: BadEnd | None
    complaint: bool
    """Whether what the person said was displeased, with a hint or without."""
    kind: str | None
    """The first tool that was called, or text; None: it ended before kinds were kept."""
    at: float
    adapter: str = SHARED
    """What served it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What a manifest did to the turns it names."""

    trained: int
    """Turns that became TRAINED."""
    unknown: int
    """Turns that it names and this store does not have."""
    repeated: tuple[str, ...]
    """Turns that another version had trained already: two learners are at work, which is an alarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What reconciling with the checkpoint folder changed."""

    committed: tuple[int, ...]
    """Versions whose manifests the store did not know."""
    lost: tuple[int, ...]
    """Versions that the store knew and that are gone, with all their descendants."""
    returned: int
    """Turns of lost versions that wait to be trained again."""
    freed: tuple[str, ...]
    """Turns that a dead learner held, in an update that no manifest names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A stage's health, as it reported it."""

    stage: str
    machine: str = ""
    """Where it runs, if the store is shared; "": here, as all that uses the store."""
    ok: bool
    message: str
    at: float

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.stage} on {self.machine}" if self.machine else self.stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A person's order that nothing may be learned."""

    since: float
    words: str
    """Why; empty: the person did not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key. The key itself is never stored."""

    name: str
    scopes: frozenset[str]
    hash: str
    created: float
    revoked: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What retention removed."""

    turns: int
    size: int
    """Bytes in use afterwards."""
    over_budget: bool
    """Whether what may not be removed alone exceeds the budget."""
