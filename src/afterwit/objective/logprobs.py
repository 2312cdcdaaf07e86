"""Log-probabilities from logits, and the sums that every objective takes.

Axes here: T tokens of a response, V vocabulary, K kept ids, S the same and perhaps the tail, H hints.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

TAIL_CEILING = -1e-7
"""Nats. The kept ids never hold more than exp(-1e-7), so the tail's log-prob stays finite."""


def full_precision(logits: Tensor) -> Tensor:
    """The logits, half precision raised to fp32; fp32 and fp64 as they are."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def same_shape(logits_TV: Tensor, what: str, other_TV: Tensor) -> None:
    """ValueError unless both logits have the same shape: broadcasting would hide it."""
    if other_TV.shape != logits_TV.shape:
        raise ValueError(f"logits {list(logits_TV.shape)} but {what} {list(other_TV.shape)}")


def logprobs(logits_TV: Tensor, tau: float) -> Tensor:
    """log softmax(logits / tau) over the vocabulary, [T, V]."""
    return torch.log_softmax(full_precision(logits_TV) / tau, dim=-1)


def at(logprobs_TV: Tensor, ids: Tensor) -> Tensor:
    """The log-probs at ids [T] or [T, K], in that shape."""
    if ids.dim() == 1:
        return logprobs_TV.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    return logprobs_TV.gather(-1, ids)


def top_k(logits_TV: Tensor, k: int) -> Tensor:
    """Ids [T, min(k, V)] of the largest logits, descending, equal logits by the lower id.

    `torch.topk` leaves open which of equals it returns, and in what order. In rows whose k-th and next value
    are equal the set is settled first; then, in all rows, the order.
    """
    size = logits_TV.shape[-1]
    k = min(k, size)
    values, ids = torch.topk(logits_TV, min(k + 1, size))
    ids = ids[:, :k]
    tied_T = values[:, k - 1] == values[:, -1]
    if k < size and bool(tied_T.any()):
        ids[tied_T] = _lower_of_equals(logits_TV[tied_T], values[tied_T, k - 1 : k], k)
    ascending = ids.sort(dim=-1).values
    order = logits_TV.gather(-1, ascending).sort(dim=-1, descending=True, stable=True).indices
    return ascending.gather(-1, order)


def _lower_of_equals(logits_TV: Tensor, edge_T1: Tensor, k: int) -> Tensor:
    """Ids [T, k] of all logits above the edge and, for the places left, of the first ones equal to it."""
    size = logits_TV.shape[-1]
    ids = torch.arange(size, device=logits_TV.device)
    rank_TV = torch.where(logits_TV > edge_T1, ids - size, torch.where(logits_TV == edge_T1, ids, size))
    return rank_TV.topk(k, largest=False).values.remainder(size)


def expected(probabilities: Tensor, values: Tensor) -> Tensor:
    """Sum over the last axis of p * value, where 0 log 0 is 0."""
    return (probabilities * values.masked_fill(probabilities == 0, 0.0)).sum(dim=-1)


def entropy(logprobs_TV: Tensor) -> Tensor:
    """H(pi) [T], nats; a bonus if `entropy_coef` is above 0."""
    return -expected(logprobs_TV.exp(), logprobs_TV)


def reference_kl(logprobs_TV: Tensor, reference_TV: Tensor) -> Tensor:
    """KL(pi || reference) [T], nats: how far the policy has moved from frozen weights on its own responses.

    Exact over the vocabulary; the gradient runs through both factors.
    """
    return expected(logprobs_TV.exp(), logprobs_TV - reference_TV)


def with_tail(logprobs_TK: Tensor, valid_TK: Tensor | None = None) -> Tensor:
    """The log-probs and, as one more [T, K + 1], that of everything but these ids, or the valid ones of them.

    The tail is log(1 - sum of exp). `TAIL_CEILING` keeps it finite; where it applies there is no gradient.
    """
    counted_TK = logprobs_TK if valid_TK is None else logprobs_TK.masked_fill(~valid_TK, -torch.inf)
    held_T1 = counted_TK.logsumexp(dim=-1, keepdim=True)
    tail_T1 = torch.log(-torch.expm1(held_T1.clamp(max=TAIL_CEILING)))
    return torch.cat([logprobs_TK, tail_T1], dim=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The chosen teacher at the ids that a term reads, without gradient; S is K, or K + 1 with the tail."""

    ids_TK: Tensor
    valid_TK: Tensor
    """False for an id that does not count: padding, outside the subset, or impossible under pi_old."""
    teacher_TS: Tensor
    """log pi_T."""
    old_TS: Tensor | None = None
    """log pi_old, for a term that reads it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTargets:
    """The targets of tokens, without gradient."""

    ids_N: Tensor
    """The sampled ids."""
    old_N: Tensor
    """log pi_old of the sampled ids."""
    correction_N: Tensor
    """The off-policy correction min(pi_old / pi_b, is_cap) of sampled tokens; 1 without the engine's
    log-probs."""
    advantage_N: Tensor
    """The RL advantage, 0 without one."""
    gap_N: Tensor
    """log pi_T - log pi_old of the sampled ids, 0 without a hint."""
    kept: Kept | None
    """`None`: no token is distilled at kept ids."""

    @property
    def read_NJ(self) -> Tensor:
        """The ids whose log-probs the terms read: the sampled one, then the kept ones."""
        sampled_N1 = self.ids_N.unsqueeze(-1)
        return sampled_N1 if self.kept is None else torch.cat([sampled_N1, self.kept.ids_TK], dim=-1)
