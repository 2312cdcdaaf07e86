"""The clipped surrogate that RL and both distillations share."""

from __future__ import annotations

import torch
from torch import Tensor

LOG_RATIO_BOUND = 20.0
"""Nats. exp(20) is finite in every dtype used here and far outside any clipping range."""


def ppo(advantage: Tensor, current: Tensor, old: Tensor, *, eps_lo: float, eps_hi: float) -> Tensor:
    """max(-A rho, -A clip(rho, 1 - eps_lo, 1 + eps_hi)), rho = pi / pi_old, elementwise.

    PPO (Schulman et al. 2017, eq. 7) as a loss, with a range that may be asymmetric. `advantage` and `old`
    carry no gradient.
    """
    rho = torch.exp((current - old).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND))
    return torch.maximum(-advantage * rho, -advantage * rho.clamp(1 - eps_lo, 1 + eps_hi))
