"""One update: micro-batches, gradients, the optimiser's step, its metrics."""

from afterwit.learner.update import plain
from afterwit.learner.update.effect import effects
from afterwit.learner.update.phase import Phase, PhaseTimes, Progress
from afterwit.learner.update.state import UpdateState
from afterwit.learner.update.update import Epoch, require_finite, score, update, update_state

__all__ = [
    "Epoch",
    "Phase",
    "PhaseTimes",
    "Progress",
    "UpdateState",
    "effects",
    "plain",
    "require_finite",
    "score",
    "update",
    "update_state",
]
