"""RL: the verdict's reward, broadcast over the response (GRPO form, Shao et al. 2024)."""

from __future__ import annotations

from torch import Tensor

from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.surrogate import ppo


def rl_loss(
    current_T: Tensor, old_T: Tensor, weight_T: Tensor, advantage_T: Tensor, settings: ObjectiveSettings
) -> Tensor:
    """Loss [T] at the sampled ids; `weight_T` corrects for pi_b, and `current_T` carries the gradient."""
    return weight_T * ppo(advantage_T, current_T, old_T, eps_lo=settings.eps_lo, eps_hi=settings.eps_hi)
