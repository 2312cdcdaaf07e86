"""The terms that read a few ids of each row, with their slopes: RL, distillation, both combined."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.token_targets import TokenTargets, term_loss


@torch.enable_grad()
def sparse_terms(
    logprobs_NJ: Tensor, what: TokenTargets, weights: Mapping[str, Tensor], settings: ObjectiveSettings
) -> tuple[dict[str, Tensor], Tensor]:
    """Each term, summed with the rows' weights; and the slopes [N, J] of their weighted sum.

    The terms are those of `objective`, differentiated by autograd: they are small.
    """
    leaf_NJ = logprobs_NJ.detach().requires_grad_()
    terms = {
        term: (each_N * term_loss(term, leaf_NJ, what, settings)).sum() for term, each_N in weights.items()
    }
    weighed = torch.stack([settings.weights[term] * value for term, value in terms.items()]).sum()
    (grad_NJ,) = torch.autograd.grad(weighed, leaf_NJ)
    return {term: value.detach() for term, value in terms.items()}, grad_NJ
