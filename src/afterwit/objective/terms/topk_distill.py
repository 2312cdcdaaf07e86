"""Top-K distillation: reverse KL to the hinted teacher over its K likeliest ids and one bin for all others.

After SDFT (arXiv:2601.19897) and SDPO (arXiv:2601.20802). The bin closes the sum: over all bins it is a
divergence of distributions, at least 0, and 0 only if both agree. Over the K ids alone, cut off or
renormalised, the minimum would be a policy that gives them no probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from afterwit.objective.logprobs import TokenTargets, expected, with_tail
from afterwit.objective.settings import ObjectiveSettings
from afterwit.objective.terms.term import Term, of_sampled

if TYPE_CHECKING:
    from afterwit.objective.target import Candidates


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """The bins and what the teacher puts into them, without gradient; S is K + 1."""

    ids_TK: Tensor
    """The ids that have a bin of their own: the teacher's likeliest."""
    valid_TK: Tensor
    """False where the teacher's ids are padded: such an id has no bin."""
    teacher_TS: Tensor
    """log pi_T of each bin, the tail last."""


def bins(found: Candidates, hint_T: Tensor, settings: ObjectiveSettings) -> Bins:
    """The bins of the chosen hint's teacher."""
    ids_TK = found.pick(found.native_ids_HTK, hint_T)
    valid_TK = torch.ones_like(ids_TK, dtype=torch.bool)
    if found.native_valid_HTK is not None:
        valid_TK = found.pick(found.native_valid_HTK, hint_T)
    teacher_TS = with_tail(found.pick(found.native_teacher_HTK, hint_T), valid_TK)
    return Bins(ids_TK=ids_TK, valid_TK=valid_TK, teacher_TS=teacher_TS)


def _loss(now_NJ: Tensor, targets: TokenTargets, settings: ObjectiveSettings) -> Tensor:
    """KL(pi || pi_T) over the bins [N], nats; the gradient runs through both factors."""
    if not isinstance(targets.kept, Bins):
        raise ValueError("top-K distillation needs the teacher's bins")
    now_NS = with_tail(now_NJ[:, 1:].masked_fill(~targets.kept.valid_TK, -torch.inf))
    return expected(now_NS.exp(), now_NS - targets.kept.teacher_TS)


TERM = Term(
    loss=_loss,
    advantages=lambda targets, settings: of_sampled(targets, targets.gap_N),  # a divergence itself has none
    keep=bins,
)
