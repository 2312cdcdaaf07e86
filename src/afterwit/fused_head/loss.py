"""The two phases of the objective from hidden states, for a micro-batch.

One, `objective.sample.prepare`: two walks through a head, the student's rows, then all teachers', which
are also read at the student's ids.

Two, the loss and its gradient in one walk. The loss separates by rows. So the logits of a chunk are computed,
read, overwritten by their own gradient and sent back through the head before the next chunk: three matrix
products, and one [chunk, V] at a time (two with the reference).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from afterwit.fused_head.head import (
    CompiledOnGpu,
    Head,
    HeadGradients,
    Softmax,
    buffers,
    cut,
    exp,
    joined,
    score_states,
    select,
    sizes_on,
    softmax_of,
    through_soft_cap,
    tiles,
    zeros,
)
from afterwit.objective.sample import (
    Candidates,
    Denominators,
    Sample,
    Target,
    candidates_of_rows,
    target_of,
    token_weights,
)
from afterwit.objective.settings import TERMS, ObjectiveSettings
from afterwit.objective.terms import TokenTargets, term_loss

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    at_N: Tensor
    """Each row's index in the micro-batch's hidden states."""
    tau_N: Tensor
    entropy_N: Tensor
    """The row's weight in the entropy."""
    reference_N: Tensor
    """The row's weight in the KL to the reference; 0 for a row of a sample that is not anchored."""
    targets: TokenTargets
    weights: dict[str, Tensor]
    """The row's weight [N] in each term that reads a few ids; 0 for a row without the term."""

    def __len__(self) -> int:
        return len(self.at_N)

    def chunks(self, size: int) -> Iterator[Rows]:
        """The rows in order, at most `size` at a time."""
        for start in range(0, len(self), size):
            yield select(self, slice(start, start + size))


def collect_rows(
    samples: Sequence[Sample], targets: Sequence[Target], over: Denominators, settings: ObjectiveSettings
) -> Rows:
    """The rows that train. ValueError if a sample carries a term that `over` does not count."""
    parts = [target.tokens for target in targets]
    carried = [
        (*settings.terms_of(sample.carried), "entropy", *(["reference_kl"] if sample.anchored else []))
        for sample in samples
    ]
    at_N = torch.cat([sample.mask_T for sample in samples]).nonzero().squeeze(-1)

    def weights(term: str) -> Tensor:
        """The weight of each row in a term; 0 for a sample without the term. Every sample has entropy."""
        each = [
            token_weights(sample, term, over, part.old_N) if term in terms else torch.zeros_like(part.old_N)
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
        entropy_N=weights("entropy"),
        reference_N=weights("reference_kl"),
        targets=select(joined(even), at_N),
        weights={term: weights(term) for term in settings.terms if any(term in terms for terms in carried)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The reference of the KL term on the same rows; its width and its device may be its own."""

    head: Head
    states_ND: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedLoss:
    """The rows' part of the batch's loss; parts add up."""

    loss: Tensor
    terms: dict[str, Tensor]
    grad_states_ND: Tensor
    """d loss / d states, in their dtype: `states_ND.backward(grad_states_ND)` goes on from here."""
    now_N: Tensor
    """log pi at the sampled id of each row that trains."""


@torch.no_grad()
def fused_loss(
    head: Head,
    states_ND: Tensor,
    rows: Rows,
    settings: ObjectiveSettings,
    gradients: HeadGradients,
    *,
    reference: Reference | None = None,
    chunk: int | None = None,
) -> FusedLoss:
    """The loss of `rows`, whose states are rows of `states_ND`.

    The head's own gradient is added to `gradients` at once and cannot be rescaled afterwards: all weights are
    in `rows` and `settings`. `chunk` rows at a time; by default as many as suit the device.
    """
    if reference is None and settings.beta > 0:
        raise ValueError(f"beta is {settings.beta}, but the reference's states are missing")
    if reference is not None and len(reference.states_ND) != len(states_ND):
        raise ValueError(f"{len(states_ND)} states but {len(reference.states_ND)} of the reference")
    chunk = chunk or sizes_on(states_ND.device).chunk
    buffer_NV, base_buffer_NV = head.buffer(min(chunk, len(rows))), None
    if reference is not None:
        base_buffer_NV = reference.head.buffer(len(buffer_NV))
    grad_states_ND, now_parts = torch.zeros_like(states_ND), []
    terms = dict.fromkeys(TERMS, rows.entropy_N.new_zeros(()))
    for part in rows.chunks(chunk):
        part_ND, base_NV = states_ND[part.at_N], None
        logits_NV = head.logits(part_ND, buffer_NV[: len(part)])
        if reference is not None and base_buffer_NV is not None:
            base_ND = reference.states_ND[part.at_N.to(reference.states_ND.device)]
            base_NV = reference.head.logits(base_ND, base_buffer_NV[: len(part)]).to(logits_NV.device)
        found, now_N = chunk_loss(logits_NV, base_NV, part, settings, head.soft_cap)
        terms |= {name: terms[name] + term for name, term in found.items()}
        now_parts.append(now_N)
        grad_states_ND[part.at_N] = head.backward(logits_NV, part_ND, gradients).to(grad_states_ND.dtype)
    loss = _weighted(terms, settings)
    return FusedLoss(loss=loss, terms=terms, grad_states_ND=grad_states_ND, now_N=torch.cat(now_parts))


def _weighted(terms: Mapping[str, Tensor], settings: ObjectiveSettings) -> Tensor:
    return torch.stack([settings.weights[name] * term for name, term in terms.items()]).sum()


def chunk_loss(
    logits_NV: Tensor,
    reference_NV: Tensor | None,
    rows: Rows,
    settings: ObjectiveSettings,
    soft_cap: float | None,
) -> tuple[dict[str, Tensor], Tensor]:
    """The terms before their weights, and log pi at the sampled ids.

    The logits become the gradient of the weighted sum of the terms. A term whose coefficient is 0 is
    measured, not learned.
    """
    softmax = softmax_of(logits_NV, rows.tau_N)
    base = None if reference_NV is None else softmax_of(reference_NV, rows.tau_N)
    ids_NJ = rows.targets.read_NJ
    read_NJ = logits_NV.gather(-1, ids_NJ)
    logprobs_NJ = softmax.logprobs(read_NJ)
    terms, grad_NJ = sparse_terms(logprobs_NJ, rows.targets, rows.weights, settings)
    read_N1, entropy_N1, kl_N1 = grad_NJ.sum(dim=-1, keepdim=True), None, None
    if settings.entropy_coef:
        entropy_N1 = -settings.entropy_coef * rows.entropy_N.unsqueeze(-1)
    if settings.beta:
        kl_N1 = settings.beta * rows.reference_N.unsqueeze(-1)
    buffers_NV = buffers(logits_NV, 3)
    tiled = [
        dense_tile(
            logits_NV[tile],
            softmax.rows(tile),
            None if reference_NV is None or base is None else (reference_NV[tile], base.rows(tile)),
            read_N1[tile],
            None if entropy_N1 is None else entropy_N1[tile],
            None if kl_N1 is None else kl_N1[tile],
            soft_cap,
            buffers_NV,
        )
        for tile in tiles(logits_NV)
    ]
    entropies, divergences = zip(*tiled, strict=True)
    grad_read_NJ = through_soft_cap(soft_cap, grad_NJ / softmax.tau_N1, read_NJ)
    logits_NV.scatter_add_(-1, ids_NJ, grad_read_NJ)
    terms["entropy"] = (rows.entropy_N.unsqueeze(-1) * torch.cat(entropies)).sum()
    if reference_NV is not None:
        terms["reference_kl"] = (rows.reference_N.unsqueeze(-1) * torch.cat(divergences)).sum()
    return terms, logprobs_NJ[:, 0]


@CompiledOnGpu
def dense_tile(
    logits_NV: Tensor,
    softmax: Softmax,
    reference: tuple[Tensor, Softmax] | None,
    read_N1: Tensor,
    entropy_N1: Tensor | None,
    kl_N1: Tensor | None,
    soft_cap: float | None,
    buffers_NV: list[Tensor | None],
) -> tuple[Tensor, Tensor | None]:
    """Entropy and reference KL of some rows, each [N, 1]; the logits become the gradient.

    `reference` is its logits and their softmax. `read_N1` sums the gradients of the log-probs that are read
    at ids. The other two weigh their terms; `None`: the term is measured, not learned.
    """

    def dot(one_NV: Tensor, other_NV: Tensor) -> Tensor:
        product_NV = torch.mul(one_NV, other_NV, out=cut(buffers_NV[2], one_NV))
        return product_NV.sum(dim=-1, keepdim=True)

    tau_N1, divergence_N1 = softmax.tau_N1, None
    t_NV = softmax.logprobs(logits_NV, out=cut(buffers_NV[0], logits_NV))
    pi_NV = exp(t_NV, out=cut(buffers_NV[1], t_NV))
    mass_N1 = pi_NV.sum(dim=-1, keepdim=True)  # 1 up to rounding, which a distant reference would magnify
    entropy_now_N1 = -dot(pi_NV, t_NV) / mass_N1
    grad_NV = -read_N1 / tau_N1
    if entropy_N1 is not None:
        grad_NV = grad_NV - entropy_N1 / tau_N1 * (t_NV + entropy_now_N1)
    if reference is not None:
        base_NV, base = reference
        apart_NV = t_NV.sub_(base.logprobs(base_NV, out=cut(buffers_NV[2], base_NV)))
        divergence_N1 = dot(pi_NV, apart_NV) / mass_N1
        if kl_N1 is not None:
            grad_NV = apart_NV.sub_(divergence_N1).mul_(kl_N1 / tau_N1).add_(grad_NV)
    if soft_cap is None:
        torch.mul(pi_NV, grad_NV, out=logits_NV)
    else:
        logits_NV.copy_(through_soft_cap(soft_cap, pi_NV.mul_(grad_NV), logits_NV))
    return entropy_now_N1, divergence_N1


@torch.enable_grad()
def sparse_terms(
    logprobs_NJ: Tensor, targets: TokenTargets, weights: Mapping[str, Tensor], settings: ObjectiveSettings
) -> tuple[dict[str, Tensor], Tensor]:
    """Each term, summed with the rows' weights; and the gradient [N, J] of their weighted sum.

    The terms are those of `objective`, differentiated by autograd: they are small.
    """
    leaf_NJ = logprobs_NJ.detach().requires_grad_()
    terms = {
        term: (each_N * term_loss(term, leaf_NJ, targets, settings)).sum() for term, each_N in weights.items()
    }
    if not terms:
        return {}, torch.zeros_like(logprobs_NJ)
    (grad_NJ,) = torch.autograd.grad(_weighted(terms, settings), leaf_NJ)
    return {term: value.detach() for term, value in terms.items()}, grad_NJ
