"""The parts of the loss, for packages that add a hint rule or an objective, or compute one. Needs torch."""

from afterwit.objective.sample import (
    Candidates,
    Denominators,
    Sample,
    SampleLoss,
    advantages,
    denominators,
    loss_at,
)
from afterwit.objective.settings import Objective
from afterwit.objective.terms import Kept, Term, TokenTargets, full_precision, of_sampled, top_k, with_tail

__all__ = [
    "Candidates",
    "Denominators",
    "Kept",
    "Objective",
    "Sample",
    "SampleLoss",
    "Term",
    "TokenTargets",
    "advantages",
    "denominators",
    "full_precision",
    "loss_at",
    "of_sampled",
    "top_k",
    "with_tail",
]
