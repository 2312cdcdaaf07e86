"""Scored rollouts of one task as a group. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from afterwit.api.turns import TeacherRow, scoring_temperature
from afterwit_atropos.group import GroupNotes, ScoredGroup, ScoredSequence, SequenceNotes, TurnNotes
from afterwit_atropos.rollout import ScoredRollout, ScoredTurn, Span, TokenSequence, Unscored


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
        _sequence(sequence, each, score)
        for each, score in zip(scored, scores, strict=True)
        for sequence in each.rollout.sequences
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


def _sequence(sequence: TokenSequence, scored: ScoredRollout, score: float) -> ScoredSequence:
    outcome = {turn.turn.id: turn for turn in scored.turns}
    spans = sequence.spans
    rows: list[TeacherRow | None] = [None] * len(sequence)
    mask = sequence.mask
    for span in spans:
        turn = outcome[span.turn.id]
        if isinstance(turn, ScoredTurn):
            rows[span.begin : span.end] = [
                row if inside else None
                for row, inside in zip(turn.rows, mask[span.begin : span.end], strict=True)
            ]
    last = spans[-1].turn
    return ScoredSequence(
        tokens=sequence.ids,
        mask=mask,
        score=score,
        logprobs=sequence.logprobs,
        rows=tuple(rows),
        messages=tuple(message.to_dict() for message in (*last.conversation.messages, last.message)),
        notes=SequenceNotes(turns=tuple(_notes(span, outcome[span.turn.id]) for span in spans)),
    )


def _notes(span: Span, turn: ScoredTurn | Unscored) -> TurnNotes:
    return TurnNotes(
        begin=span.begin,
        end=span.end,
        version=span.turn.sampled.oldest_version,
        teacher_version=turn.teacher_version if isinstance(turn, ScoredTurn) else None,
        hints=_hashes(turn) if isinstance(turn, ScoredTurn) else (),
        unscored=turn.reason if isinstance(turn, Unscored) else None,
    )


def _hashes(turn: ScoredTurn) -> tuple[str, ...]:
    taught: Iterable[str] = (turn.hints[at] for at in sorted(set(turn.chosen)))
    return tuple(hashlib.sha256(hint.encode()).hexdigest() for hint in taught)
