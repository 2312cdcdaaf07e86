"""The terms that read whole distributions, and the slopes of all terms, written over the logits tile by tile.

With log-probs t of the policy and s of the base, pi = exp t, and slopes with respect to t's logits / tau:

    entropy H = -sum pi t                       -pi (t + H)
    anchor KL(pi || base) = sum pi (t - s)      pi (t - s - KL)
    a log-prob read at an id                    one at the id, less pi
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
    """A chunk's logits with their softmax."""

    logits_NV: Tensor
    softmax: Softmax

    @classmethod
    def of(cls, logits_NV: Tensor, tau_N: Tensor) -> LogitsChunk:
        """The logits as read at these temperatures."""
        return cls(logits_NV=logits_NV, softmax=softmax_of(logits_NV, tau_N))

    def rows(self, tile: slice) -> LogitsChunk:
        """The view of some rows."""
        return LogitsChunk(logits_NV=self.logits_NV[tile], softmax=self.softmax.rows(tile))

    def logprobs(self, buffer_NV: Tensor | None) -> Tensor:
        """The log-probs, written into the buffer if there is one."""
        return self.softmax.logprobs(self.logits_NV, out=cut(buffer_NV, self.logits_NV))


def dense_terms(
    head: Head,
    now: LogitsChunk,
    base: LogitsChunk | None,
    read_N1: Tensor,
    entropy_N1: Tensor | None,
    reference_N1: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Entropy and distance from the base, each [N, 1]; `now`'s logits become slopes.

    `read_N1` sums the slopes of read ids. The other two weigh their terms; `None`: measured, not learned.
    """
    buffers_NV = buffers(now.logits_NV, 3)

    def part(of_N1: Tensor | None, tile: slice) -> Tensor | None:
        return None if of_N1 is None else of_N1[tile]

    found = [
        dense_tile(
            now.logits_NV[tile],
            now.softmax.rows(tile),
            None if base is None else base.rows(tile),
            read_N1[tile],
            part(entropy_N1, tile),
            part(reference_N1, tile),
            head.soft_cap,
            buffers_NV,
        )
        for tile in tiles(now.logits_NV)
    ]
    entropies, distances = zip(*found, strict=True)
    return torch.cat(entropies), None if base is None else torch.cat(distances)


@CompiledOnGpu
def dense_tile(
    logits_NV: Tensor,
    softmax: Softmax,
    base: LogitsChunk | None,
    read_N1: Tensor,
    entropy_N1: Tensor | None,
    reference_N1: Tensor | None,
    soft_cap: float | None,
    buffers_NV: list[Tensor | None],
) -> tuple[Tensor, Tensor | None]:
    """`dense_terms` of some rows."""
    tau_N1, distance_N1 = softmax.tau_N1, None
    t_NV = softmax.logprobs(logits_NV, out=cut(buffers_NV[0], logits_NV))
    pi_NV = exp(t_NV, out=cut(buffers_NV[1], t_NV))
    mass_N1 = pi_NV.sum(dim=-1, keepdim=True)  # 1 but for rounding, which a distant base would magnify
    entropy_now_N1 = -_dot(pi_NV, t_NV, buffers_NV[2]) / mass_N1
    grad_logits_NV = -read_N1 / tau_N1
    if entropy_N1 is not None:
        grad_logits_NV = grad_logits_NV - entropy_N1 / tau_N1 * (t_NV + entropy_now_N1)
    if base is not None:
        apart_NV = t_NV.sub_(base.logprobs(buffers_NV[2]))
        distance_N1 = _dot(pi_NV, apart_NV, buffers_NV[2]) / mass_N1
        if reference_N1 is not None:
            grad_logits_NV = apart_NV.sub_(distance_N1).mul_(reference_N1 / tau_N1).add_(grad_logits_NV)
    _write(soft_cap, logits_NV, pi_NV, grad_logits_NV)
    return entropy_now_N1, distance_N1


def _write(soft_cap: float | None, logits_NV: Tensor, grad_logits_NV: Tensor, weight: Tensor) -> None:
    """Weighted slopes of logits, over these logits, through the soft cap."""
    if soft_cap is None:
        torch.mul(grad_logits_NV, weight, out=logits_NV)
    else:
        logits_NV.copy_(through_soft_cap(soft_cap, grad_logits_NV.mul_(weight), logits_NV))


def _dot(one_NV: Tensor, other_NV: Tensor, buffer_NV: Tensor | None) -> Tensor:
    product_NV = torch.mul(one_NV, other_NV, out=cut(buffer_NV, one_NV))
    return product_NV.sum(dim=-1, keepdim=True)
