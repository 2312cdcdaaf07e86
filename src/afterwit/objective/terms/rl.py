"""RL: the verdict's reward, broadcast over the response (GRPO form, Shao et al. 2024)."""

from __future__ import annotations

from torch import Tensor

from afterwit.objective.logprobs import TokenTargets
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms.term import Term, of_sampled, ppo


def _loss(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """The surrogate of the sampled ids with A = the RL advantage."""
    surrogate_N = ppo(
        targets.advantage_N, now_NJ[:, 0], targets.old_N, eps_lo=settings.eps_lo, eps_hi=settings.eps_hi
    )
    return targets.correction_N * surrogate_N


TERM = Term(
    loss=_loss,
    advantages=lambda targets, settings: of_sampled(targets, targets.advantage_N),
    corrected=True,
)
