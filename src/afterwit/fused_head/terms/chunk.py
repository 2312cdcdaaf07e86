"""The terms of a chunk of rows; their gradient takes the place of its logits."""

from __future__ import annotations

import torch
from torch import Tensor

from afterwit.fused_head.head import Head
from afterwit.fused_head.rows import Rows
from afterwit.fused_head.terms.dense import LogitsChunk, dense_terms
from afterwit.fused_head.terms.sparse import sparse_terms
from afterwit.objective.settings import ObjectiveSettings


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
        entropy_N1=-settings.c_h * dense_N1 if settings.c_h else None,
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
