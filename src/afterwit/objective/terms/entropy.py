"""The entropy of the policy, a bonus if `entropy_coef` is above 0."""

from __future__ import annotations

from torch import Tensor

from afterwit.objective.logprobs import expected


def entropy(logprobs_TV: Tensor) -> Tensor:
    """H(pi) [T], nats, over the whole vocabulary."""
    return -expected(logprobs_TV.exp(), logprobs_TV)
