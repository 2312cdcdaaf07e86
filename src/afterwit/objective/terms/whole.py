"""The two terms over the whole vocabulary: entropy, and the KL to a reference."""

from __future__ import annotations

from torch import Tensor

from afterwit.objective.logprobs import expected


def entropy(logprobs_TV: Tensor) -> Tensor:
    """H(pi) [T], nats; a bonus if `entropy_coef` is above 0."""
    return -expected(logprobs_TV.exp(), logprobs_TV)


def reference_kl(logprobs_TV: Tensor, reference_TV: Tensor) -> Tensor:
    """KL(pi || reference) [T], nats: how far the policy has moved from frozen weights on its own responses.

    Exact over the vocabulary; the gradient runs through both factors.
    """
    return expected(logprobs_TV.exp(), logprobs_TV - reference_TV)
