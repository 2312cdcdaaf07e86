"""Token OPD: the teacher's opinion of each sampled token is its advantage (OpenClaw-RL, arXiv:2603.10165)."""

from __future__ import annotations

from torch import Tensor

from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.surrogate import ppo


def token_opd_loss(
    current_T: Tensor, old_T: Tensor, weight_T: Tensor, gap_T: Tensor, settings: ObjectiveSettings
) -> Tensor:
    """Loss [T] at the sampled ids with A = `gap_T` = log pi_T - log pi_old, detached."""
    surrogate_T = ppo(gap_T, current_T, old_T, eps_lo=settings.token_eps_lo, eps_hi=settings.token_eps_hi)
    return weight_T * surrogate_T
