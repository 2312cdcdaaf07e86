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
from afterwit.fused_head.score import Rows, joined, score_states, select, zeros
from afterwit.fused_head.softmax import Softmax
from afterwit.objective.advantage import Denominators
from afterwit.objective.sample import Sample
from afterwit.objective.sample_loss import token_weights
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.target import Candidates, Target, candidates_of_rows, target_of

GATHERED = 1024
"""Rows of the head's weight gathered at a time: 16 MiB of fp32 if they are 4096 wide."""


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
    sizes = [len(entry.states_TD) for entry in inputs]
    states_ND = torch.cat([entry.states_TD for entry in inputs]).detach()
    ids_N1 = torch.cat([entry.sample.ids_T for entry in inputs]).unsqueeze(-1)
    taus = torch.tensor([entry.sample.tau for entry in inputs], dtype=torch.float64)
    tau_N = taus.repeat_interleave(torch.tensor(sizes)).to(states_ND.device)
    student = score_states(head, states_ND, tau_N, ids_N1, k=k, chunk=chunk)
    rows_N = torch.split(torch.arange(len(states_ND), device=states_ND.device), sizes)
    rows = list(zip(inputs, rows_N, hinted, strict=True))
    run = [(entry, rows_T) for entry, rows_T, opd in rows if opd and not entry.sample.teacher_rows]
    outputs: Iterator[tuple[Tensor, ...]] = iter(())
    if run:
        ids_NJ = torch.cat([ids_N1, student.top_ids_NK], dim=-1)
        outputs = _teacher_outputs(teacher, run, tau_N, ids_NJ, chunk)

    found = []
    for entry, rows_T, opd in rows:
        sample, old_T, candidates = entry.sample, student.at_NJ[rows_T, 0], None
        top_ids_TK, top_TK = student.top_ids_NK[rows_T], student.top_NK[rows_T]
        old_at = partial(_logprobs_at, head, entry.states_TD.detach(), student.softmax.rows(rows_T))
        if opd and sample.teacher_rows:
            candidates = candidates_of_rows(sample.teacher_rows, top_ids_TK, old_T, old_at, top_TK)
        elif opd:
            at, native_ids, native = next(outputs)
            candidates = Candidates(
                student_ids_TK=top_ids_TK,
                student_old_TK=top_TK,
                student_teacher_HTK=at[..., 1:],
                native_ids_HTK=native_ids,
                native_teacher_HTK=native,
                sampled_teacher_HT=at[..., 0],
                old_at=old_at,
            )
        found.append(target_of(sample, old_T, candidates, settings, partial(_raw_old, head, entry, chunk)))
    return found


def _raw_old(head: Head, entry: ScoringInput, chunk: int | None) -> Tensor:
    ids_T = entry.sample.ids_T
    states_TD, tau_T = entry.states_TD.detach(), torch.ones_like(ids_T)
    return score_states(head, states_TD, tau_T, ids_T.unsqueeze(-1), chunk=chunk).at_NJ[:, 0]


def _teacher_outputs(
    teacher: Head | None,
    chosen: Sequence[tuple[ScoringInput, Tensor]],
    tau_N: Tensor,
    ids_NJ: Tensor,
    chunk: int | None,
) -> Iterator[tuple[Tensor, ...]]:
    """Per sample, each [H, T, ...] on the student's device: log-probs at the sampled and at the student's
    ids, the teacher's top-K ids and their log-probs. All teachers are scored in one walk."""
    if teacher is None:
        raise ValueError("there are hints, but no teacher's head")
    at_M = torch.cat([rows_T.repeat(entry.sample.hints) for entry, rows_T in chosen])
    states_MD = torch.cat([states_TD for entry, _ in chosen for states_TD in entry.teachers])
    ids_MJ, tau_M = ids_NJ[at_M].to(teacher.device), tau_N[at_M].to(teacher.device)
    found = score_states(teacher, states_MD, tau_M, ids_MJ, k=ids_NJ.shape[-1] - 1, chunk=chunk)
    sizes = [len(rows_T) * entry.sample.hints for entry, rows_T in chosen]
    parts = (part.to(at_M.device) for part in (found.at_NJ, found.top_ids_NK, found.top_NK))
    by_sample = zip(*(torch.split(part, sizes) for part in parts), strict=True)
    for (entry, _), outputs in zip(chosen, by_sample, strict=True):
        yield tuple(output.unflatten(0, (entry.sample.hints, -1)) for output in outputs)


def _logprobs_at(head: Head, states_TD: Tensor, softmax: Softmax, ids_TK: Tensor) -> Tensor:
    """Log-probs [T, K] at a few ids of each row: K scalar products a row instead of another walk."""
    rows_T = torch.arange(len(states_TD), device=states_TD.device)
    parts = [
        softmax.rows(at).logprobs(head.logits_at(states_TD[at], ids_TK[at]))
        for at in torch.split(rows_T, max(1, GATHERED // ids_TK.shape[-1]))
    ]
    return torch.cat(parts)


def collect_rows(
    samples: Sequence[Sample], targets: Sequence[Target], over: Denominators, settings: ObjectiveSettings
) -> Rows:
    """The rows that train. ValueError if a sample carries a term that `over` does not count."""
    parts = [target.tokens for target in targets]
    carried = [settings.terms_of(sample.carried) for sample in samples]
    at_N = torch.cat([sample.mask_T for sample in samples]).nonzero().squeeze(-1)

    def weights(term: str) -> Tensor:
        """The weight of each row in a term; 0 for a sample without the term. Every sample has entropy."""
        each = [
            token_weights(sample, term, over, part.old_N)
            if term == "entropy" or term in terms
            else torch.zeros_like(part.old_N)
            for sample, part, terms in zip(samples, parts, carried, strict=True)
        ]
        return torch.cat(each)[at_N]

    tau_N = torch.cat(
        [torch.full_like(part.old_N, sample.tau) for sample, part in zip(samples, parts, strict=True)]
    )
    kept = next((part.kept for part in parts if part.kept is not None), None)
    # the kept ids of a sample without a hint are zeros, which no term reads
    even = [part if part.kept else replace(part, kept=zeros(kept, len(part.ids_N))) for part in parts]
    return Rows(
        at_N=at_N,
        tau_N=tau_N[at_N],
        dense_N=weights("entropy"),
        targets=select(joined(even), at_N),
        weights={term: weights(term) for term in settings.terms if any(term in terms for terms in carried)},
    )
