"""The parts of the loss, for packages that add a hint rule or an objective, or compute one. Needs torch."""

from afterwit.objective.advantage import Denominators, advantages, denominators
from afterwit.objective.choices import Objective
from afterwit.objective.logprobs import TokenTargets, full_precision, top_k
from afterwit.objective.sample import Sample
from afterwit.objective.sample_loss import SampleLoss, loss_at
from afterwit.objective.target import Candidates
from afterwit.objective.terms.term import Term, of_sampled

__all__ = [
    "Candidates",
    "Denominators",
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
]
