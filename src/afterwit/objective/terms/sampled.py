"""The terms that read the sampled id alone. Each is a clipped surrogate with an advantage of its own.

RL (GRPO form, Shao et al. 2024) broadcasts the verdict's reward over the response. Token OPD takes the
teacher's opinion of each sampled token, and combine takes both as one advantage (OpenClaw-RL,
arXiv:2603.10165).
"""

from __future__ import annotations

from torch import Tensor

from afterwit.objective.logprobs import TokenTargets
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms.term import Term, of_sampled, ppo


def _rl(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """The surrogate of the sampled ids with A = the RL advantage."""
    return _corrected(targets.advantage_N, now_NJ, targets, settings.eps_lo, settings.eps_hi)


def _token_opd(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """The surrogate of the sampled ids with A = log pi_T - log pi_old, detached."""
    return _corrected(targets.gap_N, now_NJ, targets, settings.token_eps_lo, settings.token_eps_hi)


def _combine(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """The surrogate of the sampled ids with A = w_opd (log pi_T - log pi_old) + w_rl r, detached."""
    return _corrected(_combined(targets, settings), now_NJ, targets, settings.eps_lo, settings.eps_hi)


def _combined(targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """The gap is 0 without a hint, the advantage without a reward to learn from."""
    return settings.w_opd * targets.gap_N + settings.w_rl * targets.advantage_N


def _corrected(
    advantage_N: Tensor, now_NJ: Tensor, targets: TokenTargets, eps_lo: float, eps_hi: float
) -> Tensor:
    """The surrogate, multiplied by the off-policy correction."""
    surrogate_N = ppo(advantage_N, now_NJ[:, 0], targets.old_N, eps_lo=eps_lo, eps_hi=eps_hi)
    return targets.correction_N * surrogate_N


RL = Term(
    loss=_rl,
    advantages=lambda targets, settings: of_sampled(targets, targets.advantage_N),
    corrected=True,
)
TOKEN_OPD = Term(
    loss=_token_opd,
    advantages=lambda targets, settings: of_sampled(targets, targets.gap_N),
    corrected=True,
)
COMBINE = Term(
    loss=_combine,
    advantages=lambda targets, settings: of_sampled(targets, _combined(targets, settings)),
    corrected=True,
)
