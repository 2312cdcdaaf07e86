"""`objective.objective = "gap_descent"`: the teacher's gap at each sampled token, unclipped."""

from __future__ import annotations

from torch import Tensor

from afterwit.api.objective import Objective, Term, TokenTargets, of_sampled
from afterwit.api.settings import ObjectiveSettings


def loss(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """-(log pi_T - log pi_old) log pi at the sampled id [N]: REINFORCE with the gap as advantage."""
    return -targets.gap_N * now_NJ[:, 0]


def advantages(targets: TokenTargets, settings: ObjectiveSettings) -> tuple[Tensor, Tensor]:
    """The sampled ids and what pushes them, each [N, 1]."""
    return of_sampled(targets, targets.gap_N)


TERM = Term(loss=loss, advantages=advantages)
OBJECTIVE = Objective(terms={"opd": "gap_descent"})
