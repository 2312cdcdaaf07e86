"""Phase two of the objective, from hidden states: the loss of a micro-batch and its gradient in one walk.

The loss separates by rows. So the logits of a chunk are computed, read, overwritten by their own gradient and
sent back through the head before the next chunk: three matrix products, and one [chunk, V] at a time (two
with the reference).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from afterwit.fused_head.head import Head, HeadGradients, sizes_on, through_soft_cap
from afterwit.fused_head.score import Rows
from afterwit.fused_head.softmax import CompiledOnGpu, Softmax, buffers, cut, exp, softmax_of, tiles
from afterwit.objective.choices import TERMS
from afterwit.objective.logprobs import TokenTargets
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms import term_loss


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
    """Each of `TERMS` before its weight."""
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
    terms = dict.fromkeys(TERMS, rows.dense_N.new_zeros(()))
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
    read_N1, dense_N1 = grad_NJ.sum(dim=-1, keepdim=True), rows.dense_N.unsqueeze(-1)
    entropy_N1 = -settings.entropy_coef * dense_N1 if settings.entropy_coef else None
    kl_N1 = settings.beta * dense_N1 if settings.beta else None
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
    terms["entropy"] = (dense_N1 * torch.cat(entropies)).sum()
    if reference_NV is not None:
        terms["reference_kl"] = (dense_N1 * torch.cat(divergences)).sum()
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
