"""The parts of the loss, for packages that add a hint rule or an objective, or compute one. Needs torch."""

from afterwit.objective.advantage import Denominators, advantages, denominators
from afterwit.objective.choices import Objective, Rewarded
from afterwit.objective.logprobs import TokenTargets, full_precision, top_k
from afterwit.objective.sample import Sample
from afterwit.objective.sample_loss import SampleLoss, weighted
from afterwit.objective.target import Candidates, Target, candidates_of_rows, target_of
from afterwit.objective.terms import term_loss
from afterwit.objective.terms.term import Term, of_sampled

__all__ = [
    "Candidates",
    "Denominators",
    "Objective",
    "Rewarded",
    "Sample",
    "SampleLoss",
    "Target",
    "Term",
    "TokenTargets",
    "advantages",
    "candidates_of_rows",
    "denominators",
    "full_precision",
    "of_sampled",
    "target_of",
    "term_loss",
    "top_k",
    "weighted",
]
