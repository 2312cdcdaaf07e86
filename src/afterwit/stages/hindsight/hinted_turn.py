"""What one judged turn asks of the teacher, and its rows from the answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from afterwit.core.lifecycle import Reason
from afterwit.core.rollout import ScoredTurn, TeacherRow, Unscored, is_logprob
from afterwit.core.turn import Turn, scoring_temperature
from afterwit.core.verdict import Verdict
from afterwit.engines.port import Score, Scored
from afterwit.objective.choices.hint_selection import HintRule


@dataclass(frozen=True, slots=True, kw_only=True)
class HintedTurn:
    """A turn with the hints that may teach it."""

    turn: Turn
    verdict: Verdict
    hints: tuple[str, ...]
    rows: tuple[Score, ...]
    """The response after each hint's prompt; then after its own, if the hints are compared with that."""


def hinted_turn_of(
    turn: Turn, verdict: Verdict, hinted: Sequence[tuple[str, tuple[int, ...]]], rule: HintRule
) -> HintedTurn:
    """Of hints with their prompts, shortest first, those whose teachers the rule asks."""
    ids, tau = turn.sampled.ids, scoring_temperature(turn.sampling.temperature)
    chosen = [hinted[at] for at in rule.teachers([len(hint) for hint, _ in hinted], ids)]
    prompts = [prompt for _, prompt in chosen]
    if len(chosen) > 1:
        prompts.append(turn.prompt_ids)
    return HintedTurn(
        turn=turn,
        verdict=verdict,
        hints=tuple(hint for hint, _ in chosen),
        rows=tuple(Score(prompt_ids=prompt, response_ids=ids, tau=tau) for prompt in prompts),
    )


def scored_turn(
    hinted: HintedTurn, scored: Sequence[Scored], rule: HintRule, *, top_k: int, overlap_k: int
) -> ScoredTurn | Unscored:
    """The turn with a row for each of its tokens, by the answer to each of its `rows`."""
    ids, hints = hinted.turn.sampled.ids, len(hinted.hints)
    teachers = scored[:hints]
    chosen = rule.choose_by_ids(
        _cut(scored[-1].top_ids, overlap_k),
        [_cut(teacher.top_ids, overlap_k) for teacher in teachers],
        [not forced for forced in hinted.turn.sampled.forced],
    )
    rows = [
        row_of(
            token,
            teacher.logprobs[at],
            zip(teacher.top_ids[at], teacher.top_logprobs[at], strict=True),
            top_k,
        )
        for at, (token, teacher) in enumerate(zip(ids, (teachers[hint] for hint in chosen), strict=True))
    ]
    found = tuple(row for row in rows if row is not None)
    if len(found) < len(ids):
        return Unscored(turn=hinted.turn, reason=Reason.NOT_FINITE, verdict=hinted.verdict)
    return ScoredTurn(
        turn=hinted.turn,
        verdict=hinted.verdict,
        hints=hinted.hints,
        chosen=chosen,
        rows=found,
        teacher_version=scored[0].version,
    )


def row_of(token: int, logprob: float, top: Iterable[tuple[int, float]], k: int) -> TeacherRow | None:
    """The sampled id, then the likeliest others, k in all; None if the teacher rules the sampled id out."""
    if not is_logprob(logprob):
        return None
    others = [(each, value) for each, value in top if each != token and is_logprob(value)][: k - 1]
    return TeacherRow(
        ids=(token, *(each for each, _ in others)), logprobs=(logprob, *(value for _, value in others))
    )


def _cut(top_ids: Sequence[Sequence[int]], k: int) -> list[Sequence[int]]:
    return [ids[:k] for ids in top_ids]
