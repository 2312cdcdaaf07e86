"""Combine: reward and teacher as one advantage of each sampled token (OpenClaw-RL, arXiv:2603.10165)."""

from __future__ import annotations

from torch import Tensor

from afterwit.objective.logprobs import TokenTargets
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms.term import Term, of_sampled, ppo


def _loss(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """The surrogate of the sampled ids with A = w_opd (log pi_T - log pi_old) + w_rl r, detached.

    The gap is 0 without a hint, the advantage without a reward to learn from.
    """
    advantage_N = _advantage(targets, settings)
    surrogate_N = ppo(
        advantage_N, now_NJ[:, 0], targets.old_N, eps_lo=settings.eps_lo, eps_hi=settings.eps_hi
    )
    return targets.correction_N * surrogate_N


def _advantage(targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    return settings.w_opd * targets.gap_N + settings.w_rl * targets.advantage_N


TERM = Term(
    loss=_loss,
    advantages=lambda targets, settings: of_sampled(targets, _advantage(targets, settings)),
    corrected=True,
)
