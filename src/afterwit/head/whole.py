"""The terms that read whole distributions, and the slopes of all terms, written over the logits tile by tile.

With log-probs t of the policy and s of the base, pi = exp t, and slopes with respect to t's logits / tau:

    entropy H = -sum pi t                       -pi (t + H)
    anchor KL(pi || base) = sum pi (t - s)      pi (t - s - KL)
    memory KL(base || pi) = sum base (s - t)    pi - base
    a log-prob read at an id                    one at the id, less pi
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from afterwit.head.head import Head
from afterwit.head.softmax import Softmax, softmax_of, tiles


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A chunk's logits with their softmax."""

    logits_NV: Tensor
    softmax: Softmax

    @classmethod
    def of(cls, logits_NV: Tensor, tau_N: Tensor) -> View:
        return cls(logits_NV=logits_NV, softmax=softmax_of(logits_NV, tau_N))

    def logprobs(self, tile: slice) -> Tensor:
        """The log-probs of some rows."""
        return self.softmax.rows(tile).logprobs(self.logits_NV[tile])


def turn_slopes(
    head: Head, now: View, base: View | None, read_N1: Tensor, entropy_N1: Tensor | None, anchor_N1: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Entropy and distance from the base, each [N, 1]; `now`'s logits become slopes.

    `read_N1` is the slope's sum over read ids. The other two weigh their terms; `None`: measured, not learned.
    """
    entropies, distances = [], []
    for tile in tiles(now.logits_NV):
        t_NV = now.logprobs(tile)
        pi_NV = t_NV.exp()
        entropies.append(-_dot(pi_NV, t_NV))
        slopes_NV = -read_N1[tile]
        if base is not None:
            apart_NV = t_NV - base.logprobs(tile)
            distances.append(_dot(pi_NV, apart_NV))
            if anchor_N1 is not None:
                slopes_NV = apart_NV.sub_(distances[-1]).mul_(anchor_N1[tile]).add_(slopes_NV)
        if entropy_N1 is not None:
            slopes_NV = t_NV.add_(entropies[-1]).mul_(-entropy_N1[tile]).add_(slopes_NV)
        _write(head, now, tile, pi_NV.mul_(slopes_NV))
    return torch.cat(entropies), torch.cat(distances) if distances else None


def memory_slopes(head: Head, now: View, base: View, memory_N1: Tensor) -> Tensor:
    """The distance of the policy from the base on the base's own responses, [N, 1]; logits become slopes."""
    distances = []
    for tile in tiles(now.logits_NV):
        t_NV, s_NV = now.logprobs(tile), base.logprobs(tile)
        base_NV = s_NV.exp()
        distances.append(_dot(base_NV, s_NV.sub_(t_NV)))
        _write(head, now, tile, t_NV.exp_().sub_(base_NV).mul_(memory_N1[tile]))
    return torch.cat(distances)


def _write(head: Head, now: View, tile: slice, slopes_NV: Tensor) -> None:
    """Slopes of logits / tau, over the logits they are slopes of, through temperature and soft cap."""
    slopes_NV.div_(now.softmax.tau_N1[tile])
    now.logits_NV[tile] = head.capped(slopes_NV, now.logits_NV[tile])


def _dot(one_NV: Tensor, other_NV: Tensor) -> Tensor:
    return (one_NV * other_NV).sum(dim=-1, keepdim=True)
