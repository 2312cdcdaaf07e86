"""Phase one of the objective, from hidden states: `objective.target.prepare` for all samples of a pass.

Two walks through the head: the student's rows, then all teachers', which read the student's ids as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from afterwit.fused_head.head import Head
from afterwit.fused_head.score import Scores, score
from afterwit.fused_head.scoring_input import ScoringInput, ids, lengths, states, taus
from afterwit.fused_head.softmax import Softmax
from afterwit.objective.candidates import Candidates
from afterwit.objective.off_policy import truncated_weight
from afterwit.objective.sample import Sample
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import Target, hint_targets_of

GATHERED = 1024
"""Rows of the head's weight gathered at a time: 16 MiB of fp32 where they are 4096 wide."""


@torch.no_grad()
def targets(
    head: Head,
    inputs: Sequence[ScoringInput],
    teacher: Head | None,
    settings: ObjectiveSettings,
    *,
    chunk: int | None = None,
) -> list[Target]:
    """The target of each sample. `teacher` is the head of the teachers' states; `None`: nobody is taught."""
    taught = [entry.learns(settings) for entry in inputs]
    states_ND, k = states(inputs), settings.ids_kept if any(taught) else 0
    student = score(head, states_ND, taus(inputs), ids(inputs), k=k, chunk=chunk)
    found = _candidates(head, inputs, taught, states_ND, student, teacher, chunk)
    return [
        _target(
            entry.sample, old_T1[:, 0], _raw(head, entry, chunk), next(found) if learns else None, settings
        )
        for entry, learns, old_T1 in zip(
            inputs, taught, torch.split(student.at_NJ, lengths(inputs)), strict=True
        )
    ]


def _target(
    sample: Sample, old_T: Tensor, raw_T: Tensor | None, found: Candidates | None, settings: ObjectiveSettings
) -> Target:
    mismatch_T, weight_T = None, torch.ones_like(old_T)
    if sample.behaviour_T is not None:
        mismatch_T = (old_T if raw_T is None else raw_T) - sample.behaviour_T
        weight_T = truncated_weight(mismatch_T, settings.is_cap)
    hint_targets = None if found is None else hint_targets_of(sample, found, old_T, settings)
    return Target(old_T=old_T, mismatch_T=mismatch_T, weight_T=weight_T, hint_targets=hint_targets)


def _raw(head: Head, entry: ScoringInput, chunk: int | None) -> Tensor | None:
    """log pi_old(y) at temperature 1 [T], where the engine's values are raw and the sample is not at 1."""
    sample = entry.sample
    if sample.behaviour_T is None or sample.basis == "processed" or sample.tau == 1:
        return None
    tau_T = torch.ones_like(sample.ids_T)
    return score(head, states([entry]), tau_T, ids([entry]), chunk=chunk).at_NJ[:, 0]


def _candidates(
    head: Head,
    inputs: Sequence[ScoringInput],
    taught: Sequence[bool],
    states_ND: Tensor,
    student: Scores,
    teacher: Head | None,
    chunk: int | None,
) -> Iterator[Candidates]:
    """The candidates of each sample that is taught; all their teachers are scored in one walk."""
    if not any(taught):
        return
    if teacher is None:
        raise ValueError("there are hints, but no teacher's head")
    rows_N = torch.split(torch.arange(len(states_ND), device=states_ND.device), lengths(inputs))
    own = [rows_T for rows_T, learns in zip(rows_N, taught, strict=True) if learns]
    learning = [entry for entry, learns in zip(inputs, taught, strict=True) if learns]
    at_M = torch.cat([rows_T.repeat(p.sample.hints) for rows_T, p in zip(own, learning, strict=True)])
    states_MD = torch.cat([states_TD for entry in learning for states_TD in entry.teachers])
    ids_MJ = torch.cat([ids(inputs), student.top_ids_NK], dim=-1)[at_M]
    shown = score(teacher, states_MD, taus(inputs)[at_M], ids_MJ, k=student.top_ids_NK.shape[-1], chunk=chunk)
    each = [len(rows_T) * p.sample.hints for rows_T, p in zip(own, learning, strict=True)]
    parts = (shown.at_NJ, shown.top_ids_NK, shown.top_NK)
    split = zip(*(torch.split(part, each) for part in parts), strict=True)
    for rows_T, entry, views in zip(own, learning, split, strict=True):
        at, native_ids, native = (view.unflatten(0, (entry.sample.hints, -1)) for view in views)
        yield Candidates(
            student_ids_TK=student.top_ids_NK[rows_T],
            student_old_TK=student.top_NK[rows_T],
            student_teacher_HTK=at[..., 1:],
            native_ids_HTK=native_ids,
            native_teacher_HTK=native,
            sampled_teacher_HT=at[..., 0],
            old_at=partial(_logprobs_at, head, entry.states_TD.detach(), student.softmax.rows(rows_T)),
        )


def _logprobs_at(head: Head, states_TD: Tensor, softmax: Softmax, ids_TK: Tensor) -> Tensor:
    """Log-probs [T, K] at a few ids of each row: K scalar products a row instead of another walk."""
    rows_T = torch.arange(len(states_TD), device=states_TD.device)
    parts = [
        softmax.rows(at).logprobs(head.logits_at(states_TD[at], ids_TK[at]))
        for at in torch.split(rows_T, max(1, GATHERED // ids_TK.shape[-1]))
    ]
    return torch.cat(parts)
