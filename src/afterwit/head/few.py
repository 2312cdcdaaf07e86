"""The terms that read a few ids of each row: RL and both distillations, with their slopes."""

from __future__ import annotations

import torch
from torch import Tensor

from afterwit.head.rows import Taught
from afterwit.objective.rl import rl_loss
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.token_opd import token_opd_loss
from afterwit.objective.topk_opd import topk_opd_loss


def read_ids(taught: Taught) -> Tensor:
    """The ids [N, J] that these terms read: the sampled one, then the kept ones."""
    sampled_N1 = taught.ids_N.unsqueeze(-1)
    return sampled_N1 if taught.kept is None else torch.cat([sampled_N1, taught.kept.ids_TK], dim=-1)


@torch.enable_grad()
def few_terms(
    logprobs_NJ: Tensor, taught: Taught, settings: ObjectiveSettings
) -> tuple[dict[str, Tensor], Tensor]:
    """Each term, summed with the rows' weights; and the slopes [N, J] of their weighted sum.

    The terms are those of `objective`, differentiated by autograd: they are small.
    """
    leaf_NJ = logprobs_NJ.detach().requires_grad_()
    now_N = leaf_NJ[:, 0]
    rl_N = rl_loss(now_N, taught.old_N, taught.correction_N, taught.advantage_N, settings)
    opd_N = torch.zeros_like(now_N)
    if settings.objective == "token_opd":
        opd_N = token_opd_loss(now_N, taught.old_N, taught.correction_N, taught.gap_N, settings)
    elif taught.kept is not None:
        opd_N = topk_opd_loss(leaf_NJ[:, 1:], taught.kept, settings)
    rl, opd = (taught.rl_N * rl_N).sum(), (taught.opd_N * opd_N).sum()
    (slopes_NJ,) = torch.autograd.grad(settings.w_rl * rl + settings.w_opd * opd, leaf_NJ)
    return {"rl": rl.detach(), "opd": opd.detach()}, slopes_NJ
