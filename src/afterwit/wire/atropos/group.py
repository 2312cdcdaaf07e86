"""A group of scored sequences: several answers to one task, as an environment gives them to a trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from afterwit.core.rollout import TeacherRow, is_logprob

COLDEST, HOTTEST = 0.01, 100.0
"""Temperatures of log-probs."""
MOST_SCORE = 1e9
"""Of scores and advantages. One far beyond would make a whole update's loss infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnNotes:
    """One turn of a sequence: its sampled ids are [begin, end), the id that ended it included."""

    begin: int
    end: int
    version: int
    """The oldest weight version that sampled one of its tokens."""
    teacher_version: int | None = None
    """The weight version that scored it; None: it has no rows."""
    hints: tuple[str, ...] = ()
    """SHA-256 of each hint whose teacher its rows are of; (): it has no rows."""
    unscored: str | None = None
    """Why it has no rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceNotes:
    """What Afterwit notes beside a sequence."""

    turns: tuple[TurnNotes, ...]

    def __post_init__(self) -> None:
        at = 0
        for turn in self.turns:
            if not at <= turn.begin < turn.end:
                raise ValueError(f"a turn at [{turn.begin}, {turn.end}) behind one that ends at {at}")
            at = turn.end


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNotes:
    """What Afterwit notes beside a group."""

    tau: float
    """The temperature of every log-prob in the group: of the policy's and of the teacher's."""
    teacher: str | None = None
    """Whose weights scored, `live` or `base`; None: nobody did."""
    top_k: int | None = None
    """Most ids of a row."""
    truncated: bool = False
    """Sampled with top-p, top-k or min-p: the policy's log-probs are of what these left."""

    def __post_init__(self) -> None:
        if not COLDEST <= self.tau <= HOTTEST:
            raise ValueError(f"tau is {self.tau}, but log-probs have one between {COLDEST} and {HOTTEST}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSequence:
    """One sequence with its score. Every tuple is as long as `tokens`."""

    tokens: tuple[int, ...]
    mask: tuple[bool, ...]
    """Whether a token is in the loss."""
    score: float
    logprobs: tuple[float | None, ...] | None
    """What the policy reported for each token that it sampled, None at the others; None: not sent."""
    rows: tuple[TeacherRow | None, ...] | None = None
    """The teacher's distribution *for* each token, None where it is not distilled; None: no row was sent."""
    advantages: tuple[float, ...] | None = None
    messages: tuple[Mapping[str, Any], ...] | None = None
    notes: SequenceNotes | None = None

    def __post_init__(self) -> None:
        for name in ("mask", "logprobs", "rows", "advantages"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.tokens):
                raise ValueError(f"{len(self.tokens)} tokens but {len(values)} {name}")
        if not self.tokens:
            raise ValueError("a sequence without tokens")
        if not all(abs(value) <= MOST_SCORE for value in (self.score, *(self.advantages or ()))):
            raise ValueError(f"a score or advantage is not finite, or beyond {MOST_SCORE:g}")
        self._check_logprobs()
        for token, inside, row in zip(self.tokens, self.mask, self.rows or (), strict=False):
            if row is not None and not (inside and row.ids[0] == token):
                raise ValueError(
                    f"a teacher's row begins with {row.ids[0]} at token {token}, in the loss: {inside}"
                )
        if self.notes is not None and self.notes.turns and self.notes.turns[-1].end > len(self.tokens):
            raise ValueError(f"a turn ends at {self.notes.turns[-1].end}, its sequence at {len(self.tokens)}")

    def _check_logprobs(self) -> None:
        if self.logprobs is None:
            return
        for at, (inside, value) in enumerate(zip(self.mask, self.logprobs, strict=True)):
            if inside and value is None:
                raise ValueError(f"token {at} is in the loss, but its log-prob was not sent")
            if value is not None and not is_logprob(value):
                raise ValueError(f"token {at} has {value}, which is no finite log-prob")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """Several sequences of one task. Either each has teacher rows, or none has."""

    sequences: tuple[ScoredSequence, ...]
    notes: GroupNotes | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What others wrote into `group_overrides`."""

    def __post_init__(self) -> None:
        if not self.sequences:
            raise ValueError("a group without sequences")
        for name in ("rows", "logprobs", "advantages", "messages"):
            without = sum(getattr(sequence, name) is None for sequence in self.sequences)
            if without not in (0, len(self.sequences)):
                raise ValueError(f"{without} of {len(self.sequences)} sequences have no {name}")

    @property
    def distils(self) -> bool:
        """Whether its sequences have teacher rows."""
        return self.sequences[0].rows is not None
