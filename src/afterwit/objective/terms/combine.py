"""Combine: reward and teacher as one advantage of each sampled token (OpenClaw-RL, arXiv:2603.10165)."""

from __future__ import annotations

from torch import Tensor

from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.surrogate import ppo


def combine_loss(
    current_T: Tensor,
    old_T: Tensor,
    weight_T: Tensor,
    gap_T: Tensor,
    advantage_T: Tensor,
    settings: ObjectiveSettings,
) -> Tensor:
    """Loss [T] at the sampled ids with A = w_opd (log pi_T - log pi_old) + w_rl r, detached.

    `gap_T` is 0 where the sample has no hint, `advantage_T` where it has no reward to learn from.
    """
    both_T = settings.w_opd * gap_T + settings.w_rl * advantage_T
    return weight_T * ppo(both_T, current_T, old_T, eps_lo=settings.eps_lo, eps_hi=settings.eps_hi)
