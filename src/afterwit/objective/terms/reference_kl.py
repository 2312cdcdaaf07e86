"""The anchor: how far the policy has moved from the frozen base on its own responses."""

from __future__ import annotations

from torch import Tensor

from afterwit.objective.logprobs import expected


def reference_kl(logprobs_TV: Tensor, base_TV: Tensor) -> Tensor:
    """KL(pi || base) [T], nats, exact over the vocabulary; the gradient runs through both factors of pi."""
    return expected(logprobs_TV.exp(), logprobs_TV - base_TV)
