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

    def chunk(self, part: Rows, buffer_NV: Tensor) -> LogitsChunk:
        """Its logits of some rows, on the rows' device."""
        at_N = part.at_N.to(self.states_ND.device)
        logits_NV = self.head.logits(self.states_ND[at_N], buffer_NV[: len(part)])
        return LogitsChunk.of(logits_NV.to(part.at_N.device), part.tau_N)


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
    _check(states_ND, settings, reference)
    chunk = chunk or sizes_on(states_ND.device).chunk
    buffer_NV = head.buffer(min(chunk, len(rows)))
    reference_buffer_NV = buffer_NV if reference is None else reference.head.buffer(len(buffer_NV))
    grad_states_ND, now_parts = torch.zeros_like(states_ND), []
    terms = dict.fromkeys(TERMS, rows.dense_N.new_zeros(()))
    for part in rows.chunks(chunk):
        logits_NV = head.logits(states_ND[part.at_N], buffer_NV[: len(part)])
        now = LogitsChunk.of(logits_NV, part.tau_N)
        other = None if reference is None else reference.chunk(part, reference_buffer_NV)
        found, now_N = chunk_loss(head, now, other, part, settings)
        terms |= {name: terms[name] + term for name, term in found.items()}
        now_parts.append(now_N)
        grad_part_ND = head.backward(now.logits_NV, states_ND[part.at_N], gradients)
        grad_states_ND[part.at_N] = grad_part_ND.to(grad_states_ND.dtype)
    return FusedLoss(
        loss=weighted(terms, settings), terms=terms, grad_states_ND=grad_states_ND, now_N=torch.cat(now_parts)
    )


def _check(states_ND: Tensor, settings: ObjectiveSettings, reference: Reference | None) -> None:
    if reference is None and settings.beta > 0:
        raise ValueError(f"beta is {settings.beta}, but the reference's states are missing")
    if reference is not None and len(reference.states_ND) != len(states_ND):
        raise ValueError(f"{len(states_ND)} states but {len(reference.states_ND)} of the reference")


def chunk_loss(
    head: Head, now: LogitsChunk, reference: LogitsChunk | None, rows: Rows, settings: ObjectiveSettings
) -> tuple[dict[str, Tensor], Tensor]:
    """The terms before their weights, and log pi at the sampled ids.

    `now`'s logits become the gradient of the weighted sum of the terms.
    """
    ids_NJ = rows.targets.read_NJ
    read_NJ = now.logits_NV.gather(-1, ids_NJ)
    logprobs_NJ = now.softmax.logprobs(read_NJ)
    terms, grad_NJ = sparse_terms(logprobs_NJ, rows.targets, rows.weights, settings)
    dense_N1 = rows.dense_N.unsqueeze(-1)
    entropy_N1, kl_N1 = dense_terms(
        head,
        now,
        reference,
        read_N1=grad_NJ.sum(dim=-1, keepdim=True),
        entropy_N1=-settings.entropy_coef * dense_N1 if settings.entropy_coef else None,
        kl_N1=settings.beta * dense_N1 if settings.beta else None,
    )
    grad_read_NJ = head.before_soft_cap(grad_NJ / now.softmax.tau_N1, read_NJ)
    now.logits_NV.scatter_add_(-1, ids_NJ, grad_read_NJ)
    terms["entropy"] = (dense_N1 * entropy_N1).sum()
    if kl_N1 is not None:
        terms["reference_kl"] = (dense_N1 * kl_N1).sum()
    return terms, logprobs_NJ[:, 0]


def weighted(terms: dict[str, Tensor], settings: ObjectiveSettings) -> Tensor:
    """The loss that the terms add up to."""
    return torch.stack([settings.weights[name] * term for name, term in terms.items()]).sum()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsChunk:
    """The logits of some rows with their softmax."""

    logits_NV: Tensor
    softmax: Softmax

    @classmethod
    def of(cls, logits_NV: Tensor, tau_N: Tensor) -> LogitsChunk:
        """The logits as read at these temperatures."""
        return cls(logits_NV=logits_NV, softmax=softmax_of(logits_NV, tau_N))

    def rows(self, tile: slice) -> LogitsChunk:
        """Some of the rows."""
        return LogitsChunk(logits_NV=self.logits_NV[tile], softmax=self.softmax.rows(tile))

    def logprobs(self, buffer_NV: Tensor | None) -> Tensor:
        """The log-probs, written into the buffer if there is one."""
        return self.softmax.logprobs(self.logits_NV, out=cut(buffer_NV, self.logits_NV))


def dense_terms(
    head: Head,
    now: LogitsChunk,
    reference: LogitsChunk | None,
    read_N1: Tensor,
    entropy_N1: Tensor | None,
    kl_N1: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Entropy and reference KL, each [N, 1]; `now`'s logits become the gradient.

    `read_N1` sums the gradients of the log-probs that are read at ids. The other two weigh their terms;
    `None`: the term is measured, not learned.
    """
    buffers_NV = buffers(now.logits_NV, 3)

    def part(of_N1: Tensor | None, tile: slice) -> Tensor | None:
        return None if of_N1 is None else of_N1[tile]

    found = [
        dense_tile(
            now.logits_NV[tile],
            now.softmax.rows(tile),
            None if reference is None else reference.rows(tile),
            read_N1[tile],
            part(entropy_N1, tile),
            part(kl_N1, tile),
            head.soft_cap,
            buffers_NV,
        )
        for tile in tiles(now.logits_NV)
    ]
    entropies, divergences = zip(*found, strict=True)
    return torch.cat(entropies), None if reference is None else torch.cat(divergences)


@CompiledOnGpu
def dense_tile(
    logits_NV: Tensor,
    softmax: Softmax,
    reference: LogitsChunk | None,
    read_N1: Tensor,
    entropy_N1: Tensor | None,
    kl_N1: Tensor | None,
    soft_cap: float | None,
    buffers_NV: list[Tensor | None],
) -> tuple[Tensor, Tensor | None]:
    """`dense_terms` of some rows."""
    tau_N1, divergence_N1 = softmax.tau_N1, None
    t_NV = softmax.logprobs(logits_NV, out=cut(buffers_NV[0], logits_NV))
    pi_NV = exp(t_NV, out=cut(buffers_NV[1], t_NV))
    mass_N1 = pi_NV.sum(dim=-1, keepdim=True)  # 1 up to rounding, which a distant reference would magnify
    entropy_now_N1 = -_dot(pi_NV, t_NV, buffers_NV[2]) / mass_N1
    grad_NV = -read_N1 / tau_N1
    if entropy_N1 is not None:
        grad_NV = grad_NV - entropy_N1 / tau_N1 * (t_NV + entropy_now_N1)
    if reference is not None:
        apart_NV = t_NV.sub_(reference.logprobs(buffers_NV[2]))
        divergence_N1 = _dot(pi_NV, apart_NV, buffers_NV[2]) / mass_N1
        if kl_N1 is not None:
            grad_NV = apart_NV.sub_(divergence_N1).mul_(kl_N1 / tau_N1).add_(grad_NV)
    _write(soft_cap, logits_NV, pi_NV, grad_NV)
    return entropy_now_N1, divergence_N1


def _write(soft_cap: float | None, logits_NV: Tensor, pi_NV: Tensor, grad_NV: Tensor) -> None:
    """Write pi times the gradient over the logits, through the soft cap."""
    if soft_cap is None:
        torch.mul(pi_NV, grad_NV, out=logits_NV)
    else:
        logits_NV.copy_(through_soft_cap(soft_cap, pi_NV.mul_(grad_NV), logits_NV))


def _dot(one_NV: Tensor, other_NV: Tensor, buffer_NV: Tensor | None) -> Tensor:
    product_NV = torch.mul(one_NV, other_NV, out=cut(buffer_NV, one_NV))
    return product_NV.sum(dim=-1, keepdim=True)


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
    loss = torch.stack([settings.weights[term] * value for term, value in terms.items()]).sum()
    (grad_NJ,) = torch.autograd.grad(loss, leaf_NJ)
    return {term: value.detach() for term, value in terms.items()}, grad_NJ
