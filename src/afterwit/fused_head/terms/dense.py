"""The terms that read whole distributions, and the gradient of all terms, written over the logits by tiles.

With log-probs t of the policy and s of the reference, pi = exp t, and gradients with respect to logits / tau:

    entropy H = -sum pi t                           -pi (t + H)
    reference KL(pi || reference) = sum pi (t - s)  pi (t - s - KL)
    a log-prob read at an id                        one at the id, less pi
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from afterwit.fused_head.compiled import CompiledOnGpu
from afterwit.fused_head.head import Head, through_soft_cap
from afterwit.fused_head.softmax import Softmax, buffers, cut, exp, softmax_of, tiles


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitsChunk:
    """The logits of some rows with their softmax."""

    logits_NV: Tensor
    softmax: Softmax

    @classmethod
    def of(cls, logits_NV: Tensor, tau_N: Tensor) -> LogitsChunk:
        """The logits as read at these temperatures."""
        return cls(logits_NV=logits_NV, softmax=softmax_of(logits_NV, tau_N))

    def rows(self, tile: slice) -> LogitsChunk:
        """Some of the rows."""
        return LogitsChunk(logits_NV=self.logits_NV[tile], softmax=self.softmax.rows(tile))

    def logprobs(self, buffer_NV: Tensor | None) -> Tensor:
        """The log-probs, written into the buffer if there is one."""
        return self.softmax.logprobs(self.logits_NV, out=cut(buffer_NV, self.logits_NV))


def dense_terms(
    head: Head,
    now: LogitsChunk,
    reference: LogitsChunk | None,
    read_N1: Tensor,
    entropy_N1: Tensor | None,
    kl_N1: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Entropy and reference KL, each [N, 1]; `now`'s logits become the gradient.

    `read_N1` sums the gradients of the log-probs that are read at ids. The other two weigh their terms;
    `None`: the term is measured, not learned.
    """
    buffers_NV = buffers(now.logits_NV, 3)

    def part(of_N1: Tensor | None, tile: slice) -> Tensor | None:
        return None if of_N1 is None else of_N1[tile]

    found = [
        dense_tile(
            now.logits_NV[tile],
            now.softmax.rows(tile),
            None if reference is None else reference.rows(tile),
            read_N1[tile],
            part(entropy_N1, tile),
            part(kl_N1, tile),
            head.soft_cap,
            buffers_NV,
        )
        for tile in tiles(now.logits_NV)
    ]
    entropies, divergences = zip(*found, strict=True)
    return torch.cat(entropies), None if reference is None else torch.cat(divergences)


@CompiledOnGpu
def dense_tile(
    logits_NV: Tensor,
    softmax: Softmax,
    reference: LogitsChunk | None,
    read_N1: Tensor,
    entropy_N1: Tensor | None,
    kl_N1: Tensor | None,
    soft_cap: float | None,
    buffers_NV: list[Tensor | None],
) -> tuple[Tensor, Tensor | None]:
    """`dense_terms` of some rows."""
    tau_N1, divergence_N1 = softmax.tau_N1, None
    t_NV = softmax.logprobs(logits_NV, out=cut(buffers_NV[0], logits_NV))
    pi_NV = exp(t_NV, out=cut(buffers_NV[1], t_NV))
    mass_N1 = pi_NV.sum(dim=-1, keepdim=True)  # 1 up to rounding, which a distant reference would magnify
    entropy_now_N1 = -_dot(pi_NV, t_NV, buffers_NV[2]) / mass_N1
    grad_NV = -read_N1 / tau_N1
    if entropy_N1 is not None:
        grad_NV = grad_NV - entropy_N1 / tau_N1 * (t_NV + entropy_now_N1)
    if reference is not None:
        apart_NV = t_NV.sub_(reference.logprobs(buffers_NV[2]))
        divergence_N1 = _dot(pi_NV, apart_NV, buffers_NV[2]) / mass_N1
        if kl_N1 is not None:
            grad_NV = apart_NV.sub_(divergence_N1).mul_(kl_N1 / tau_N1).add_(grad_NV)
    _write(soft_cap, logits_NV, pi_NV, grad_NV)
    return entropy_now_N1, divergence_N1


def _write(soft_cap: float | None, logits_NV: Tensor, pi_NV: Tensor, grad_NV: Tensor) -> None:
    """Write pi times the gradient over the logits, through the soft cap."""
    if soft_cap is None:
        torch.mul(pi_NV, grad_NV, out=logits_NV)
    else:
        logits_NV.copy_(through_soft_cap(soft_cap, pi_NV.mul_(grad_NV), logits_NV))


def _dot(one_NV: Tensor, other_NV: Tensor, buffer_NV: Tensor | None) -> Tensor:
    product_NV = torch.mul(one_NV, other_NV, out=cut(buffer_NV, one_NV))
    return product_NV.sum(dim=-1, keepdim=True)
