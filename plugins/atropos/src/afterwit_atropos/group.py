"""A group of scored sequences: several answers to one task, as an environment gives them to a trainer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from afterwit.api.turns import TeacherRow, is_logprob

COLDEST, HOTTEST = 0.01, 100.0
"""Temperatures of log-probs."""

MOST_SCORE = 1e9
"""Of scores and advantages. One far beyond would make a whole update's loss infinite."""

SENTINEL = 1.0
"""`inference_logprobs` of a token that the policy did not sample. No log-prob is above 0."""

MOST_MASS = 1.05
"""The most that a row's probabilities may sum to, rounded as they are."""

PADDING = (0, 0.0)
"""The id and log-prob with which other environments fill a row to one width, or a position without one."""

Wire = tuple[list[list[int]], list[list[float]]]
"""`distill_token_ids` and `distill_logprobs` of one sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnNotes:
    """One turn of a sequence: its sampled ids are [begin, end), the id that ended it included."""

    begin: int
    end: int
    version: int
    """The oldest weight version that sampled one of its tokens."""
    teacher_version: int | None = None
    """The weight version that scored it; None without rows."""
    hints: tuple[str, ...] = ()
    """SHA-256 of each hint whose teacher gave its rows; () without rows."""
    unscored: str | None = None
    """The reason for missing rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceNotes:
    """Afterwit's notes on a sequence."""

    turns: tuple[TurnNotes, ...]

    def __post_init__(self) -> None:
        at = 0
        for turn in self.turns:
            if not at <= turn.begin < turn.end:
                raise ValueError(f"a turn at [{turn.begin}, {turn.end}) after one that ends at {at}")
            at = turn.end


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNotes:
    """Afterwit's notes on a group."""

    tau: float
    """The temperature of every log-prob in the group: of the policy's and of the teacher's."""
    teacher: str | None = None
    """The weights that scored, `live` or `base`; None if none did."""
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
    """The policy's log-prob of each token that it sampled, None at the others; None: not sent."""
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
                raise ValueError(f"token {at} has {value}, which is not a finite log-prob")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """Several sequences of one task. Either each has teacher rows, or none has."""

    sequences: tuple[ScoredSequence, ...]
    notes: GroupNotes | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Entries of other programs in `group_overrides`."""

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


class Profile(StrEnum):
    """How teacher rows are written."""

    SAMPLED = "sampled"
    """For a consumer that uses teacher minus student as the advantage."""
    TOPK = "topk"


def write_rows(
    profile: Profile,
    rows: Sequence[TeacherRow | None],
    tokens: Sequence[int],
    inference_logprobs: Sequence[float],
) -> Wire:
    """Rows in the form of a profile, all as long as `tokens`."""
    if profile is Profile.TOPK:
        return [list(row.ids) if row else [] for row in rows], [
            list(row.logprobs) if row else [] for row in rows
        ]
    logprobs = [[row.logprobs[0] if row else own] for row, own in zip(rows, inference_logprobs, strict=True)]
    return [[token] for token in tokens], logprobs


def profile_of(ids: Sequence[Sequence[Sequence[int]]]) -> Profile:
    """The form of a group's `distill_token_ids`: `sampled` if every position of every sequence has one id."""
    return Profile.SAMPLED if all(len(row) == 1 for rows in ids for row in rows) else Profile.TOPK


def read_rows(
    profile: Profile,
    ids: Sequence[Sequence[int]],
    logprobs: Sequence[Sequence[float]],
    tokens: Sequence[int],
    own: Sequence[float],
    mask: Sequence[bool],
) -> tuple[TeacherRow | None, ...]:
    """The rows of one sequence of any environment; `own` is its `inference_logprobs`. Raises ValueError for a
    malformed row.

    The sampled id may stand anywhere in its row, and the others in any order. A position has no row if it is
    outside the loss, if its row is padding alone, or, in the form `sampled`, if its value equals its own
    log-prob.
    """
    return tuple(
        _row(profile, at, ids[at], logprobs[at], tokens[at], own[at] if own else None) if mask[at] else None
        for at in range(len(tokens))
    )


def _row(
    profile: Profile,
    at: int,
    ids: Sequence[int],
    logprobs: Sequence[float],
    token: int,
    own: float | None,
) -> TeacherRow | None:
    if len(ids) != len(logprobs):
        raise ValueError(f"{len(ids)} teacher ids but {len(logprobs)} log-probs at token {at}")
    pairs = list(zip(ids, map(float, logprobs), strict=True))
    if profile is Profile.SAMPLED and pairs == [(token, own)]:
        return None
    padded = _mass(pairs) > MOST_MASS or token not in ids
    while padded and pairs and pairs[-1] == PADDING:
        pairs.pop()
    if not pairs:
        return None
    pairs.sort(key=lambda pair: (pair[0] != token, -pair[1]))
    if pairs[0][0] != token:
        raise ValueError(f"the teacher's row at token {at} lacks the sampled id {token}")
    try:
        row = TeacherRow(ids=tuple(each for each, _ in pairs), logprobs=tuple(value for _, value in pairs))
        if (mass := _mass(pairs)) > MOST_MASS:
            raise ValueError(f"the probabilities of a teacher's row sum to {mass:.3g}")
        return row
    except ValueError as error:
        raise ValueError(f"token {at}: {error}") from error


def _mass(pairs: Sequence[tuple[int, float]]) -> float:
    return sum(math.exp(min(value, 1.0)) for _, value in pairs)
