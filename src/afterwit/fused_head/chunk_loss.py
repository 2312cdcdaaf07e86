"""A chunk of rows, graded: its terms, and slopes of their weighted sum in place of its logits."""

from __future__ import annotations

import torch
from torch import Tensor

from afterwit.fused_head.dense_terms import LogitsChunk, dense_terms
from afterwit.fused_head.head import Head
from afterwit.fused_head.rows import Rows
from afterwit.fused_head.sparse_terms import sparse_terms
from afterwit.objective.settings import ObjectiveSettings


def chunk_loss(
    head: Head, now: LogitsChunk, base: LogitsChunk | None, rows: Rows, settings: ObjectiveSettings
) -> tuple[dict[str, Tensor], Tensor]:
    """Terms before their weights, and log pi at the sampled ids."""
    ids_NJ = rows.taught.read_NJ
    read_NJ = now.logits_NV.gather(-1, ids_NJ)
    logprobs_NJ = now.softmax.logprobs(read_NJ)
    terms, grad_NJ = sparse_terms(logprobs_NJ, rows.taught, rows.weights, settings)
    dense_N1 = rows.dense_N.unsqueeze(-1)
    entropy_N1, distance_N1 = dense_terms(
        head,
        now,
        base,
        read_N1=grad_NJ.sum(dim=-1, keepdim=True),
        entropy_N1=-settings.c_h * dense_N1 if settings.c_h else None,
        reference_N1=settings.beta * dense_N1 if settings.beta else None,
    )
    now.logits_NV.scatter_add_(-1, ids_NJ, head.capped(grad_NJ / now.softmax.tau_N1, read_NJ))
    terms["entropy"] = (dense_N1 * entropy_N1).sum()
    if distance_N1 is not None:
        terms["reference_kl"] = (dense_N1 * distance_N1).sum()
    return terms, logprobs_NJ[:, 0]


def weighed(terms: dict[str, Tensor], settings: ObjectiveSettings) -> Tensor:
    """The loss that the terms add up to."""
    return torch.stack([settings.weights[name] * term for name, term in terms.items()]).sum()
