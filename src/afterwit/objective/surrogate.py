"""The clipped surrogate that RL and both distillations share."""

from __future__ import annotations

import torch
from torch import Tensor

from afterwit.objective.logprobs import at, logprobs
from afterwit.objective.sample import Sample

LOG_RATIO_BOUND = 20.0
"""Nats. exp(20) is finite in every dtype used here and far outside any clipping range."""


def ppo(advantage: Tensor, current: Tensor, old: Tensor, *, eps_lo: float, eps_hi: float) -> Tensor:
    """max(-A rho, -A clip(rho, 1 - eps_lo, 1 + eps_hi)), rho = pi / pi_old, elementwise.

    PPO (Schulman et al. 2017, eq. 7) as a loss, with a range that may be asymmetric. `advantage` and `old`
    carry no gradient.
    """
    rho = torch.exp((current - old).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND))
    return torch.maximum(-advantage * rho, -advantage * rho.clamp(1 - eps_lo, 1 + eps_hi))


def mismatch(sample: Sample, old_T: Tensor, logits_old_TV: Tensor) -> Tensor | None:
    """log pi_old(y) - log pi_b(y), [T], both on the basis of the engine's values; `None` without those."""
    if sample.behaviour_T is None:
        return None
    if sample.basis == "raw":
        old_T = at(logprobs(logits_old_TV, 1.0), sample.ids_T)
    return old_T - sample.behaviour_T


def truncated_weight(mismatch_T: Tensor, cap: float) -> Tensor:
    """min(pi_old / pi_b, cap), [T]."""
    return mismatch_T.exp().clamp(max=cap)
