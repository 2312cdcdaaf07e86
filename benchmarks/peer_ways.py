"""The passes of TRL and Liger-Kernel over a head, as their trainers call them."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.head_work import Work

TILE = 32_768
"""Ids of a tile of TRL's, as its trainers set it."""
SEQUENCE = 256
"""Rows that Liger-Kernel takes at a time."""
SDPO_IDS = 100
"""SDPO's default."""


def grpo(work: Work, *, advantage: float = 1.0) -> tuple[Tensor, ...]:
    """TRL's GRPO: the gradients of the clipped surrogate at the sampled ids."""
    states_ND, weight_VD = work.leaves()
    logprobs_N = logprobs(states_ND, weight_VD, work)
    ratio_N = (logprobs_N - logprobs_N.detach()).exp()
    loss = -torch.min(advantage * ratio_N, advantage * ratio_N.clamp(0.8, 1.28)).mean()
    return torch.autograd.grad(loss, (states_ND, weight_VD))


def score(work: Work) -> Tensor:
    """TRL's log-probs of the sampled ids, without a graph."""
    with torch.no_grad():
        return logprobs(work.states_ND, work.head.weight_VD, work)


def logprobs(states_ND: Tensor, weight_VD: Tensor, work: Work) -> Tensor:
    from trl.kernels.chunked_logprob import ChunkedLogProbFunction

    found, *_ = ChunkedLogProbFunction.apply(
        states_ND, weight_VD, None, work.sample.ids_T, work.sample.tau, TILE, None, 1.0, ()
    )
    return found


@torch.no_grad()
def top(work: Work, k: int) -> tuple[Tensor, Tensor]:
    """TRL's log-probs of the k likeliest ids and of the sampled one, off whole logits."""
    from trl.trainer.utils import selective_log_softmax

    logits_1NV = (work.states_ND @ work.head.weight_VD.t())[None]
    ids_1NJ = torch.cat([work.sample.ids_T[None, :, None], logits_1NV.topk(k).indices], dim=-1)
    return ids_1NJ, selective_log_softmax(logits_1NV, ids_1NJ)


def divergence(work: Work) -> tuple[Tensor, ...]:
    """TRL's distillation: the gradients of the reverse KL over the whole vocabulary."""
    from trl.kernels.chunked_divergence import ChunkedDivergenceFunction

    states_ND, weight_VD = work.leaves()
    teacher = (work.taught_ND, work.head.weight_VD, None)
    found_N, _ = ChunkedDivergenceFunction.apply(states_ND, weight_VD, None, *teacher, 1.0)
    return torch.autograd.grad(found_N.mean(), (states_ND, weight_VD))


def sdpo(work: Work) -> tuple[Tensor, ...]:
    """TRL's SDPO: the gradients of the reverse KL over the student's likeliest ids and the tail."""
    from trl.experimental.sdpo.loss_utils import compute_topk_self_distillation_loss

    states_ND, weight_VD = work.leaves()
    with torch.no_grad():
        teacher_NV = work.taught_ND @ work.head.weight_VD.t()
    found_N = compute_topk_self_distillation_loss(
        states_ND @ weight_VD.t(),
        teacher_NV,
        distillation_topk=SDPO_IDS,
        distillation_alpha=1.0,
        distillation_add_tail=True,
    )
    return torch.autograd.grad(found_N.mean(), (states_ND, weight_VD))


def liger_grpo(work: Work, *, compiled: bool = True) -> tuple[Tensor, ...]:
    """Liger-Kernel's GRPO, with a fixed number of sequences at a time."""
    from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

    states_ND, weight_VD = work.leaves()
    ids_BT = work.sample.ids_T.unflatten(0, (-1, SEQUENCE))
    loss_of = LigerFusedLinearGRPOLoss(
        beta=0.0, compiled=compiled, use_ref_model=False, loss_type="bnpo", epsilon_high=0.28
    )
    ones_BT = torch.ones_like(ids_BT)
    loss, _ = loss_of(
        states_ND.unflatten(0, (-1, SEQUENCE)), weight_VD, ids_BT, ones_BT, ones_BT[:, 0].float()
    )
    return torch.autograd.grad(loss, (states_ND, weight_VD))


def liger_jsd(work: Work, *, compiled: bool = True) -> tuple[Tensor, ...]:
    """Liger-Kernel's distillation: the reverse KL over the whole vocabulary."""
    from liger_kernel.chunked_loss import LigerFusedLinearJSDLoss

    states_ND, weight_VD = work.leaves()
    loss_of = LigerFusedLinearJSDLoss(
        weight_hard_loss=0.0, weight_soft_loss=1.0, beta=1.0, compiled=compiled, chunk_size=SEQUENCE
    )
    loss = loss_of(states_ND, weight_VD, work.taught_ND, work.head.weight_VD, work.sample.ids_T)
    return torch.autograd.grad(loss, (states_ND, weight_VD))
