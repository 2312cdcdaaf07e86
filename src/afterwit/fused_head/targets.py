"""Phase one of the objective, from hidden states: `objective.target.prepare` for a whole micro-batch.

Two walks through a head: the student's rows, then all teachers', which are also read at the student's ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from afterwit.fused_head.head import Head
from afterwit.fused_head.score import Rows, Scores, joined, score_states, select, zeros
from afterwit.fused_head.softmax import Softmax
from afterwit.objective.advantage import Denominators
from afterwit.objective.logprobs import TokenTargets
from afterwit.objective.sample import Sample
from afterwit.objective.sample_loss import token_weights
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import (
    Candidates,
    Target,
    candidates_of_rows,
    target_of,
)

GATHERED = 1024
"""Rows of the head's weight gathered at a time: 16 MiB of fp32 if they are 4096 wide."""


@torch.no_grad()
def targets(
    head: Head,
    inputs: Sequence[ScoringInput],
    teacher: Head | None,
    settings: ObjectiveSettings,
    *,
    chunk: int | None = None,
) -> list[Target]:
    """The target of each sample. `teacher` is the head of the teachers' states; its device may be its own."""
    hinted = [entry.has_opd(settings) for entry in inputs]
    k = settings.ids_kept if any(hinted) else 0
    student = score_states(head, states(inputs), taus(inputs), ids(inputs), k=k, chunk=chunk)
    found = _candidates(head, inputs, hinted, student, teacher, chunk)
    parts = zip(inputs, hinted, torch.split(student.at_NJ, lengths(inputs)), strict=True)
    return [
        target_of(
            entry.sample,
            old_T1[:, 0],
            next(found) if has_opd else None,
            settings,
            partial(_raw_old, head, entry, chunk),
        )
        for entry, has_opd, old_T1 in parts
    ]


def _raw_old(head: Head, entry: ScoringInput, chunk: int | None) -> Tensor:
    tau_T = torch.ones_like(entry.sample.ids_T)
    return score_states(head, states([entry]), tau_T, ids([entry]), chunk=chunk).at_NJ[:, 0]


def _candidates(
    head: Head,
    inputs: Sequence[ScoringInput],
    hinted: Sequence[bool],
    student: Scores,
    teacher: Head | None,
    chunk: int | None,
) -> Iterator[Candidates]:
    """The candidates of each sample with an OPD term."""
    device = student.at_NJ.device
    rows_N = torch.split(torch.arange(len(student.at_NJ), device=device), lengths(inputs))
    chosen = [(entry, rows_T) for entry, rows_T, has in zip(inputs, rows_N, hinted, strict=True) if has]
    run = [(entry, rows_T) for entry, rows_T in chosen if not entry.sample.teacher_rows]
    outputs = iter(_teacher_outputs(run, inputs, student, teacher, chunk) if run else ())
    for entry, rows_T in chosen:
        student_ids_TK, student_old_TK = student.top_ids_NK[rows_T], student.top_NK[rows_T]
        old_at = partial(_logprobs_at, head, entry.states_TD.detach(), student.softmax.rows(rows_T))
        if entry.sample.teacher_rows:
            yield candidates_of_rows(
                entry.sample.teacher_rows,
                student_ids_TK=student_ids_TK,
                student_old_TK=student_old_TK,
                old_T=student.at_NJ[rows_T, 0],
                old_at=old_at,
            )
            continue
        at, native_ids, native = next(outputs)
        yield Candidates(
            student_ids_TK=student_ids_TK,
            student_old_TK=student_old_TK,
            student_teacher_HTK=at[..., 1:],
            native_ids_HTK=native_ids,
            native_teacher_HTK=native,
            sampled_teacher_HT=at[..., 0],
            old_at=old_at,
        )


def _teacher_outputs(
    chosen: Sequence[tuple[ScoringInput, Tensor]],
    inputs: Sequence[ScoringInput],
    student: Scores,
    teacher: Head | None,
    chunk: int | None,
) -> list[tuple[Tensor, ...]]:
    """Per sample, each [H, T, ...] on the student's device: log-probs at the sampled and at the student's
    ids, the teacher's top-K ids and their log-probs. All teachers are scored in one walk."""
    if teacher is None:
        raise ValueError("there are hints, but no teacher's head")
    at_M = torch.cat([rows_T.repeat(entry.sample.hints) for entry, rows_T in chosen])
    states_MD = torch.cat([states_TD for entry, _ in chosen for states_TD in entry.teachers])
    ids_MJ = torch.cat([ids(inputs), student.top_ids_NK], dim=-1)[at_M].to(teacher.device)
    tau_M = taus(inputs)[at_M].to(teacher.device)
    found = score_states(teacher, states_MD, tau_M, ids_MJ, k=student.top_ids_NK.shape[-1], chunk=chunk)
    sizes = [len(rows_T) * entry.sample.hints for entry, rows_T in chosen]
    parts = (part.to(at_M.device) for part in (found.at_NJ, found.top_ids_NK, found.top_NK))
    by_sample = zip(*(torch.split(part, sizes) for part in parts), strict=True)
    return [
        tuple(output.unflatten(0, (entry.sample.hints, -1)) for output in outputs)
        for (entry, _), outputs in zip(chosen, by_sample, strict=True)
    ]


def _logprobs_at(head: Head, states_TD: Tensor, softmax: Softmax, ids_TK: Tensor) -> Tensor:
    """Log-probs [T, K] at a few ids of each row: K scalar products a row instead of another walk."""
    rows_T = torch.arange(len(states_TD), device=states_TD.device)
    parts = [
        softmax.rows(at).logprobs(head.logits_at(states_TD[at], ids_TK[at]))
        for at in torch.split(rows_T, max(1, GATHERED // ids_TK.shape[-1]))
    ]
    return torch.cat(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringInput:
    """States of the student, and of its teachers if it has an OPD term."""

    sample: Sample
    states_TD: Tensor
    teachers: tuple[Tensor, ...] = ()
    """The teacher's states [T, its own width] after each hint, in their order; unread without an OPD term."""

    def __post_init__(self) -> None:
        for states_TD in (self.states_TD, *self.teachers):
            if len(states_TD) != len(self.sample.ids_T):
                raise ValueError(f"{len(self.sample.ids_T)} ids but {len(states_TD)} states")

    def has_opd(self, settings: ObjectiveSettings) -> bool:
        """Whether it has an OPD term. ValueError if a teacher is missing."""
        if not settings.has_opd or not self.sample.taught:
            return False
        if len(self.teachers) != self.sample.hints:
            raise ValueError(f"{self.sample.hints} hints but {len(self.teachers)} teachers")
        return True


def lengths(inputs: Sequence[ScoringInput]) -> list[int]:
    """T of each."""
    return [len(entry.states_TD) for entry in inputs]


def states(inputs: Sequence[ScoringInput]) -> Tensor:
    """All rows of the students [N, D], without a graph."""
    return torch.cat([entry.states_TD for entry in inputs]).detach()


def ids(inputs: Sequence[ScoringInput]) -> Tensor:
    """The sampled id of each row, [N, 1]."""
    return torch.cat([entry.sample.ids_T for entry in inputs]).unsqueeze(-1)


def taus(inputs: Sequence[ScoringInput]) -> Tensor:
    """The temperature of each row, [N], in fp64."""
    each = torch.tensor([entry.sample.tau for entry in inputs], dtype=torch.float64)
    return each.repeat_interleave(torch.tensor(lengths(inputs))).to(inputs[0].states_TD.device)


def collect_rows(
    samples: Sequence[Sample], targets: Sequence[Target], over: Denominators, settings: ObjectiveSettings
) -> Rows:
    """The rows that train. ValueError if a sample carries a term that `over` does not count."""
    parts = [target.tokens for target in targets]
    pairs = list(zip(samples, parts, strict=True))
    tau_N = torch.cat([torch.full_like(part.old_N, sample.tau) for sample, part in pairs])
    dense_N = torch.cat([token_weights(sample, "entropy", over, part.old_N) for sample, part in pairs])
    at_N = torch.cat([sample.mask_T for sample in samples]).nonzero().squeeze(-1)
    return Rows(
        at_N=at_N,
        tau_N=tau_N[at_N],
        dense_N=dense_N[at_N],
        targets=select(joined(_all_with_kept(parts)), at_N),
        weights={name: each_N[at_N] for name, each_N in _sparse_weights(pairs, over, settings).items()},
    )


def _sparse_weights(
    pairs: Sequence[tuple[Sample, TokenTargets]], over: Denominators, settings: ObjectiveSettings
) -> dict[str, Tensor]:
    """The weight of each token in each term that a sample carries; 0 for a sample without the term."""
    carried = [settings.terms_of(sample.carried) for sample, _ in pairs]
    names = [name for name in settings.terms if any(name in terms for terms in carried)]
    return {
        name: torch.cat(
            [
                token_weights(sample, name, over, part.old_N)
                if name in terms
                else torch.zeros_like(part.old_N)
                for (sample, part), terms in zip(pairs, carried, strict=True)
            ]
        )
        for name in names
    }


def _all_with_kept(parts: Sequence[TokenTargets]) -> list[TokenTargets]:
    """All with kept ids if any has them; those of a sample without a hint are zeros, which no term reads."""
    kept = next((part.kept for part in parts if part.kept is not None), None)
    return [part if part.kept else replace(part, kept=zeros(kept, len(part.ids_N))) for part in parts]
