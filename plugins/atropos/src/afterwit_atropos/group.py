"""A group of scored sequences: several answers to one task, as an environment gives them to a trainer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from afterwit.api.turns import TeacherRow, is_logprob, scoring_temperature
from afterwit_atropos.rollout import ScoredRollout, ScoredTurn, TurnInHindsight, Unscored

COLDEST, HOTTEST = 0.01, 100.0
"""Temperatures of log-probs."""

MOST_SCORE = 1e9
"""Of scores and advantages. One far beyond would make a whole update's loss infinite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """Several sequences of one task. Either each has teacher rows, or none has."""

    sequences: tuple[ScoredSequence, ...]
    notes: GroupNotes | None = None

    def __post_init__(self) -> None:
        if not self.sequences:
            raise BadGroup(Refusal.LENGTHS, "a group without sequences")
        for name in ("rows", "logprobs", "advantages", "messages"):
            without = sum(getattr(sequence, name) is None for sequence in self.sequences)
            if without not in (0, len(self.sequences)):
                sizes = f"{without} of {len(self.sequences)} sequences"
                raise BadGroup(Refusal.LENGTHS, f"{sizes} have no {name}")

    @property
    def distils(self) -> bool:
        """Whether its sequences have teacher rows."""
        return self.sequences[0].rows is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredSequence:
    """One sequence with its score. Every tuple is as long as `tokens`. BadGroup for what does not fit."""

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
        if not self.tokens:
            raise BadGroup(Refusal.LENGTHS, "a sequence without tokens")
        for name in ("mask", "logprobs", "rows", "advantages"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.tokens):
                raise BadGroup(Refusal.LENGTHS, f"{len(self.tokens)} tokens but {len(values)} {name}")
        if not all(abs(value) <= MOST_SCORE for value in (self.score, *(self.advantages or ()))):
            raise BadGroup(
                Refusal.NOT_FINITE, f"a score or advantage is not finite, or beyond {MOST_SCORE:g}"
            )
        for at, (inside, value) in enumerate(zip(self.mask, self.logprobs or (), strict=False)):
            if inside and value is None:
                raise BadGroup(Refusal.LOGPROBS, f"token {at} is in the loss without a log-prob")
            if value is not None and not is_logprob(value):
                raise BadGroup(Refusal.LOGPROBS, f"token {at} has the log-prob {value:g}")
        for token, inside, row in zip(self.tokens, self.mask, self.rows or (), strict=False):
            if row is not None and not (inside and row.ids[0] == token):
                raise BadGroup(
                    Refusal.ROWS,
                    f"a teacher's row begins with {row.ids[0]} at token {token}, in the loss: {inside}",
                )
        end = self.notes.turns[-1].end if self.notes is not None and self.notes.turns else 0
        if end > len(self.tokens):
            raise BadGroup(Refusal.NOTES, f"a turn ends at {end}, its sequence at {len(self.tokens)}")


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


class Profile(StrEnum):
    """How teacher rows are written."""

    SAMPLED = "sampled"
    """For a consumer that uses teacher minus student as the advantage."""
    TOPK = "topk"


class Refusal(StrEnum):
    """Why a group is refused. The value is what metrics count."""

    MALFORMED = "malformed"
    """A field is missing or has another type."""
    LENGTHS = "lengths"
    """Fields of one sequence have different lengths, or fields of one group."""
    NOT_FINITE = "not_finite"
    UNKNOWN_ID = "unknown_id"
    """An id that the vocabulary does not have."""
    MASK = "mask"
    """A mask holds what is neither -100 nor the token."""
    LOGPROBS = "logprobs"
    """A sampled token without a valid log-prob."""
    ROWS = "rows"
    """Invalid teacher rows: without the sampled id, or with probabilities beyond 1."""
    NOTES = "notes"
    """Afterwit's notes on a group were changed in transit."""


class BadGroup(ValueError):
    """A group that cannot be trained on."""

    def __init__(self, refusal: Refusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


def group_of(
    scored: Sequence[ScoredRollout], scores: Sequence[float], *, top_k: int | None = None
) -> ScoredGroup:
    """The group of these rollouts, each with its score. `top_k`: most ids of a row, as the notes say.

    A rollout whose turns do not continue one another is several sequences with one score. ValueError if the
    rollouts were scored under different settings, or not one for one.
    """
    if len(scored) != len(scores):
        raise ValueError(f"{len(scored)} rollouts but {len(scores)} scores")
    sequences = [
        _sequence(continuing, score)
        for each, score in zip(scored, scores, strict=True)
        for continuing in _continuing(each.turns)
    ]
    turns = [turn for each in scored for turn in each.rollout.in_order]
    teachers = {each.teacher for each in scored}
    taus = {scoring_temperature(turn.sampling.temperature) for turn in turns}
    if len(teachers) != 1 or len(taus) != 1:
        raise ValueError(f"a group has one teacher and one temperature, not {len(teachers)} and {len(taus)}")
    (teacher,), (tau,) = teachers, taus
    truncated = any(turn.sampling.truncated for turn in turns)
    notes = GroupNotes(tau=tau, teacher=teacher, top_k=top_k, truncated=truncated)
    return ScoredGroup(sequences=tuple(sequences), notes=notes)


def _continuing(turns: Iterable[TurnInHindsight]) -> list[list[TurnInHindsight]]:
    """The turns in as few sequences as their prompts allow, each of which begins with all that was before."""
    found: list[list[TurnInHindsight]] = []
    ids: tuple[int, ...] = ()
    for each in turns:
        if found and each.turn.prompt_ids[: len(ids)] == ids:
            found[-1].append(each)
        else:
            found.append([each])
        ids = (*each.turn.prompt_ids, *each.turn.sampled.ids)
    return found


def _sequence(scored: Sequence[TurnInHindsight], score: float) -> ScoredSequence:
    """The ids of one forward pass; between the turns is what templates and tools wrote."""
    last = scored[-1].turn
    tokens = (*last.prompt_ids, *last.sampled.ids)
    logprobs: list[float | None] = [None] * len(tokens)
    rows: list[TeacherRow | None] = [None] * len(tokens)
    notes = []
    for each in scored:
        sampled, begin = each.turn.sampled, len(each.turn.prompt_ids)
        for at, (logprob, forced) in enumerate(zip(sampled.logprobs, sampled.forced, strict=True)):
            if not forced:
                logprobs[begin + at] = logprob
                rows[begin + at] = each.rows[at] if isinstance(each, ScoredTurn) else None
        notes.append(_notes(each, begin))
    return ScoredSequence(
        tokens=tokens,
        mask=tuple(logprob is not None for logprob in logprobs),
        score=score,
        logprobs=tuple(logprobs),
        rows=tuple(rows),
        messages=tuple(message.to_dict() for message in (*last.conversation.messages, last.message)),
        notes=SequenceNotes(turns=tuple(notes)),
    )


def _notes(scored: TurnInHindsight, begin: int) -> TurnNotes:
    sampled = scored.turn.sampled
    end = begin + len(sampled.ids)
    notes = TurnNotes(begin=begin, end=end, version=sampled.oldest_version)
    if isinstance(scored, Unscored):
        return replace(notes, unscored=scored.reason)
    taught = (scored.hints[at] for at in sorted(set(scored.chosen)))
    hashes = tuple(hashlib.sha256(hint.encode()).hexdigest() for hint in taught)
    return replace(notes, teacher_version=scored.teacher_version, hints=hashes)
