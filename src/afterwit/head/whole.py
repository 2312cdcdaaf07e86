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
from afterwit.head.softmax import Softmax, softmax_of, tile_room, tiles


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A chunk's logits with their softmax."""

    logits_NV: Tensor
    softmax: Softmax

    @classmethod
    def of(cls, logits_NV: Tensor, tau_N: Tensor) -> View:
        """The logits as read at these temperatures."""
        return cls(logits_NV=logits_NV, softmax=softmax_of(logits_NV, tau_N))

    def logprobs(self, tile: slice, room_NV: Tensor) -> Tensor:
        """The log-probs of some rows, written into the room."""
        logits_NV = self.logits_NV[tile]
        return self.softmax.rows(tile).logprobs(logits_NV, out=room_NV[: len(logits_NV)])


def turn_slopes(
    head: Head,
    now: View,
    base: View | None,
    read_N1: Tensor,
    entropy_N1: Tensor | None,
    anchor_N1: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Entropy and distance from the base, each [N, 1]; `now`'s logits become slopes.

    `read_N1` sums the slopes of read ids. The other two weigh their terms; `None`: measured, not learned.
    """
    entropies, distances, tau_N1 = [], [], now.softmax.tau_N1
    rooms = [tile_room(now.logits_NV) for _ in range(3)]
    for tile in tiles(now.logits_NV):
        t_NV = now.logprobs(tile, rooms[0])
        pi_NV = torch.exp(t_NV, out=rooms[1][: len(t_NV)])
        mass_N1 = pi_NV.sum(dim=-1, keepdim=True)  # 1 but for rounding, which a distant base would magnify
        entropies.append(-_dot(pi_NV, t_NV, rooms[2]) / mass_N1)
        slopes_NV = -read_N1[tile] / tau_N1[tile]
        if entropy_N1 is not None:
            weight_N1 = entropy_N1[tile] / tau_N1[tile]
            slopes_NV = slopes_NV - weight_N1 * (t_NV + entropies[-1])
        if base is not None:
            apart_NV = t_NV.sub_(base.logprobs(tile, rooms[2]))
            distances.append(_dot(pi_NV, apart_NV, rooms[2]) / mass_N1)
            if anchor_N1 is not None:
                weight_N1 = anchor_N1[tile] / tau_N1[tile]
                slopes_NV = apart_NV.sub_(distances[-1]).mul_(weight_N1).add_(slopes_NV)
        _write(head, now.logits_NV[tile], pi_NV, slopes_NV)
    return torch.cat(entropies), torch.cat(distances) if distances else None


def memory_slopes(head: Head, now: View, base: View, memory_N1: Tensor) -> Tensor:
    """The distance of the policy from the base on the base's own responses, [N, 1]; logits become slopes."""
    distances, tau_N1 = [], now.softmax.tau_N1
    rooms = [tile_room(now.logits_NV) for _ in range(3)]
    for tile in tiles(now.logits_NV):
        t_NV, s_NV = now.logprobs(tile, rooms[0]), base.logprobs(tile, rooms[1])
        base_NV = s_NV.exp()
        distances.append(_dot(base_NV, s_NV.sub_(t_NV), rooms[2]))
        _write(head, now.logits_NV[tile], t_NV.exp_().sub_(base_NV), memory_N1[tile] / tau_N1[tile])
    return torch.cat(distances)


def _write(head: Head, logits_NV: Tensor, slopes_NV: Tensor, weight: Tensor) -> None:
    """Weighted slopes of logits, over these logits, through the soft cap."""
    if head.soft_cap is None:
        torch.mul(slopes_NV, weight, out=logits_NV)
    else:
        logits_NV.copy_(head.capped(slopes_NV.mul_(weight), logits_NV))


def _dot(one_NV: Tensor, other_NV: Tensor, room_NV: Tensor) -> Tensor:
    product_NV = torch.mul(one_NV, other_NV, out=room_NV[: len(one_NV)])
    return product_NV.sum(dim=-1, keepdim=True)
