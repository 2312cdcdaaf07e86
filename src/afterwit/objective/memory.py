"""The memory term: the policy keeps giving the base's answers their probability."""

from __future__ import annotations

from torch import Tensor

from afterwit.objective.logprobs import expected


def memory_loss(logprobs_TV: Tensor, base_TV: Tensor) -> Tensor:
    """KL(base || pi) [T], nats, exact over the vocabulary, on responses that the base sampled."""
    return expected(base_TV.exp(), base_TV - logprobs_TV)
