"""The terms that read the sampled id alone. Each is a clipped surrogate with an advantage of its own.

RL (GRPO form, Shao et al. 2024) broadcasts the verdict's reward over the response. Token OPD takes the
teacher's opinion of each sampled token, and combine takes both as one advantage (OpenClaw-RL,
arXiv:2603.10165).
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from afterwit.objective.logprobs import TokenTargets
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms.term import Term, of_sampled, ppo


def _surrogate(advantage: Callable[[TokenTargets, ObjectiveSettings], Tensor], clip: str = "eps") -> Term:
    """The surrogate of the sampled ids with this detached advantage [N], times the off-policy correction."""

    def loss(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
        eps_lo, eps_hi = getattr(settings, f"{clip}_lo"), getattr(settings, f"{clip}_hi")
        advantage_N = advantage(targets, settings)
        surrogate_N = ppo(advantage_N, now_NJ[:, 0], targets.old_N, eps_lo=eps_lo, eps_hi=eps_hi)
        return targets.correction_N * surrogate_N

    return Term(
        loss=loss, advantages=lambda targets, settings: of_sampled(targets, advantage(targets, settings))
    )


RL = _surrogate(lambda targets, settings: targets.advantage_N)
TOKEN_OPD = _surrogate(lambda targets, settings: targets.gap_N, clip="token_eps")
COMBINE = _surrogate(
    lambda targets, settings: settings.w_opd * targets.gap_N + settings.w_rl * targets.advantage_N
)
