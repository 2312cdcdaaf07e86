"""Off-policy correction: the truncated importance weight of sampled tokens (Ionides 2008)."""

from __future__ import annotations

from torch import Tensor

from afterwit.objective.logprobs import at, logprobs
from afterwit.objective.sample import Sample


def mismatch(sample: Sample, old_T: Tensor, logits_old_TV: Tensor) -> Tensor | None:
    """log pi_old(y) - log pi_b(y), [T], both on the basis of the engine's values; `None` without those."""
    if sample.behaviour_T is None:
        return None
    if sample.basis == "raw":
        old_T = at(logprobs(logits_old_TV, 1.0), sample.ids_T)
    return old_T - sample.behaviour_T


def truncated_weight(mismatch_T: Tensor, cap: float) -> Tensor:
    """min(pi_old / pi_b, cap), [T]."""
    return mismatch_T.exp().clamp(max=cap)
