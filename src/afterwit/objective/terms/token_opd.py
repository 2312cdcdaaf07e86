"""Token OPD: the teacher's opinion of each sampled token is its advantage (OpenClaw-RL, arXiv:2603.10165)."""

from __future__ import annotations

from torch import Tensor

from afterwit.objective.logprobs import TokenTargets
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms.term import Term, of_sampled, ppo


def _loss(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """The surrogate of the sampled ids with A = log pi_T - log pi_old, detached."""
    surrogate_N = ppo(
        targets.gap_N,
        now_NJ[:, 0],
        targets.old_N,
        eps_lo=settings.token_eps_lo,
        eps_hi=settings.token_eps_hi,
    )
    return targets.correction_N * surrogate_N


TERM = Term(
    loss=_loss,
    advantages=lambda targets, settings: of_sampled(targets, targets.gap_N),
    corrected=True,
)
