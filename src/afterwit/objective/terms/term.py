"""The interface of a term, and the clipped surrogate that RL and both forms of OPD share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from afterwit.objective.logprobs import KeptIds, TokenTargets
from afterwit.objective.settings import ObjectiveSettings

if TYPE_CHECKING:
    from afterwit.objective.target import Candidates

LOG_RATIO_BOUND = 20.0
"""Nats. exp(20) is finite in every dtype used here and far outside any clipping range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A term that reads a few ids of each token."""

    advantages: Callable[[TokenTargets, ObjectiveSettings], tuple[Tensor, Tensor]]
    """(targets, settings) -> ids [N, J] and the advantage [N, J] that pushes each up or down."""
    loss: Callable[[Tensor, TokenTargets, ObjectiveSettings], Tensor]
    """(log pi [N, 1 + K] at the sampled id and the kept ids, targets, settings) -> loss [N]."""
    keep: Callable[[Candidates, Tensor, ObjectiveSettings], KeptIds] | None = None
    """(candidates, chosen hint [T], settings) -> what is kept of that hint's teacher; `None`: nothing."""


def of_sampled(targets: TokenTargets, advantage_N: Tensor) -> tuple[Tensor, Tensor]:
    """The sampled ids with their advantage, each [N, 1]."""
    return targets.ids_N[:, None], advantage_N[:, None]


def ppo(advantage: Tensor, current: Tensor, old: Tensor, *, eps_lo: float, eps_hi: float) -> Tensor:
    """max(-A rho, -A clip(rho, 1 - eps_lo, 1 + eps_hi)), rho = pi / pi_old, elementwise.

    PPO (Schulman et al. 2017, eq. 7) as a loss, with a range that may be asymmetric. `advantage` and `old`
    carry no gradient.
    """
    rho = torch.exp((current - old).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND))
    return torch.maximum(-advantage * rho, -advantage * rho.clamp(1 - eps_lo, 1 + eps_hi))
