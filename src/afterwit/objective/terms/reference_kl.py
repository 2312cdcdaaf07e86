"""The reference KL: how far the policy has moved from frozen weights, on its own responses."""

from __future__ import annotations

from torch import Tensor

from afterwit.objective.logprobs import expected


def reference_kl(logprobs_TV: Tensor, reference_TV: Tensor) -> Tensor:
    """KL(pi || reference) [T], nats, exact over the vocabulary; the gradient runs through both factors."""
    return expected(logprobs_TV.exp(), logprobs_TV - reference_TV)
