"""The terms that read a few ids of each row, with their gradient: RL, distillation, combine."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms import term_loss
from afterwit.objective.token_targets import TokenTargets


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
