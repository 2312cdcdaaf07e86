"""A chunk of rows, graded: its terms, and slopes of their weighted sum in place of its logits."""

from __future__ import annotations

import torch
from torch import Tensor

from afterwit.fused_head.few import few_terms
from afterwit.fused_head.head import Head
from afterwit.fused_head.rows import Rows
from afterwit.fused_head.whole import View, turn_slopes
from afterwit.objective.settings import ObjectiveSettings


def grade(
    head: Head, now: View, base: View | None, rows: Rows, settings: ObjectiveSettings
) -> tuple[dict[str, Tensor], Tensor]:
    """Terms before their weights, and log pi at the sampled ids."""
    ids_NJ = rows.taught.read_NJ
    read_NJ = now.logits_NV.gather(-1, ids_NJ)
    logprobs_NJ = now.softmax.logprobs(read_NJ)
    terms, few_NJ = few_terms(logprobs_NJ, rows.taught, rows.weights, settings)
    whole_N1 = rows.whole_N.unsqueeze(-1)
    entropy_N1, distance_N1 = turn_slopes(
        head,
        now,
        base,
        read_N1=few_NJ.sum(dim=-1, keepdim=True),
        entropy_N1=-settings.c_h * whole_N1 if settings.c_h else None,
        anchor_N1=settings.beta * whole_N1 if settings.beta else None,
    )
    now.logits_NV.scatter_add_(-1, ids_NJ, head.capped(few_NJ / now.softmax.tau_N1, read_NJ))
    terms["entropy"] = (whole_N1 * entropy_N1).sum()
    if distance_N1 is not None:
        terms["kl_base"] = (whole_N1 * distance_N1).sum()
    return terms, logprobs_NJ[:, 0]


def weighed(terms: dict[str, Tensor], settings: ObjectiveSettings) -> Tensor:
    """The loss that the terms add up to."""
    return torch.stack([settings.weights[name] * term for name, term in terms.items()]).sum()
