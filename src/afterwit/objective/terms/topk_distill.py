"""Top-K distillation: reverse KL to the hinted teacher over its K likeliest ids and one bin for all others.

After SDFT (arXiv:2601.19897) and SDPO (arXiv:2601.20802). The bin closes the sum: over all bins it is a
divergence of distributions, at least 0, and 0 only where both agree. The K ids alone, whether cut off or
renormalised, would be pleased best by a policy that leaves them.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from afterwit.objective.candidates import Candidates
from afterwit.objective.hint_selection import pick
from afterwit.objective.logprobs import expected, with_tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """The bins and what the teacher puts into them, without gradient; S is K + 1."""

    ids_TK: Tensor
    """The ids that have a bin of their own: the teacher's likeliest."""
    teacher_TS: Tensor
    """log pi_T of each bin, the tail last."""


def bins(found: Candidates, hint_T: Tensor) -> Bins:
    """The bins of the chosen hint's teacher."""
    teacher_TK = pick(found.native_teacher_HTK, hint_T)
    return Bins(ids_TK=pick(found.native_ids_HTK, hint_T), teacher_TS=with_tail(teacher_TK))


def topk_distill_loss(current_TK: Tensor, target: Bins) -> Tensor:
    """KL(pi || pi_T) over the bins [T], nats; the gradient runs through both factors of `current_TK`."""
    current_TS = with_tail(current_TK)
    return expected(current_TS.exp(), current_TS - target.teacher_TS)
