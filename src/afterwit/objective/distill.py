"""Distillation at kept ids, either way: what a lesson keeps of its teacher, and the loss it becomes."""

from __future__ import annotations

from torch import Tensor

from afterwit.objective.candidates import Candidates
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms.topk_distill import Bins, bins, topk_distill_loss
from afterwit.objective.terms.topk_opd import Kept, keep, topk_opd_loss

Distilled = Kept | Bins


def distilled(found: Candidates, hint_T: Tensor, settings: ObjectiveSettings) -> Distilled | None:
    """The chosen hint's teacher at kept ids; `None` where the objective reads it at the sampled ids alone."""
    if settings.objective in ("hybrid", "topk_opd"):
        return keep(found, hint_T, settings)
    return bins(found, hint_T) if settings.objective == "topk_distill" else None


def distill_loss(current_TK: Tensor, target: Distilled, settings: ObjectiveSettings) -> Tensor:
    """Loss [T]; `current_TK` are log pi at the target's ids, with the gradient."""
    if isinstance(target, Bins):
        return topk_distill_loss(current_TK, target)
    return topk_opd_loss(current_TK, target, settings)
