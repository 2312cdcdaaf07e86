"""Log-probs and likeliest ids from logits whose vocabulary is shared out over the processes of a group.

Axes: T tokens of a response, W columns of this process, V ids of all, J ids that are read, K kept ids.
Process r holds the columns from r W on. Every process computes the same results; gradients are of its own
columns, for a loss that every process computes (Shoeybi et al. 2019, arXiv:1909.08053).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from afterwit.api.objective import full_precision, top_k

NO_ID = torch.iinfo(torch.int64).max
"""The id of a place in a top-K that this process cannot fill."""


@dataclass(frozen=True, slots=True)
class Shards:
    """How the vocabulary is shared out."""

    group: dist.ProcessGroup
    size: int
    """V, without the ids that only pad it."""

    def own(self, logits_TW: Tensor) -> tuple[Tensor, int]:
        """This process's logits without padding, and the id of the first."""
        first = dist.get_rank(self.group) * logits_TW.shape[-1]
        return logits_TW[:, : max(0, self.size - first)], first

    def at(self, logits_TW: Tensor, ids_TJ: Tensor, tau: float) -> Tensor:
        """log softmax(logits / tau) at ids [T, J] or [T], in that shape, with the gradient."""
        if ids_TJ.dim() == 1:
            return self.at(logits_TW, ids_TJ[:, None], tau)[:, 0]
        own_TW, first = self.own(logits_TW)
        scaled_TW = full_precision(own_TW) / tau
        found: Tensor = _At.apply(scaled_TW, ids_TJ, first, self.group)  # type: ignore[no-untyped-call]
        return found

    @torch.no_grad()
    def top_k(self, logits_TW: Tensor, k: int) -> Tensor:
        """Ids [T, min(k, V)] of the largest logits, descending, equal logits by the lower id."""
        own_TW, first = self.own(logits_TW)
        k = min(k, self.size)
        ids = own_TW.new_full((len(own_TW), k), NO_ID, dtype=torch.int64)
        values = own_TW.new_full((len(own_TW), k), -torch.inf)
        if own_TW.shape[-1]:
            local = top_k(own_TW, k)
            ids[:, : local.shape[-1]] = local + first
            values[:, : local.shape[-1]] = own_TW.gather(-1, local)
        ids, values = (torch.cat(self._every(each), dim=-1) for each in (ids, values))
        by_id = ids.sort(dim=-1)
        order = values.gather(-1, by_id.indices).sort(dim=-1, descending=True, stable=True).indices
        return by_id.values.gather(-1, order)[:, :k]

    def _every(self, mine: Tensor) -> list[Tensor]:
        found = [torch.empty_like(mine) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(found, mine, group=self.group)
        return found


class _At(torch.autograd.Function):
    """Log-probs at ids. d/dlogits of log pi(v) is 1[v] - pi, of which each process has its columns."""

    @staticmethod
    def forward(ctx: Any, logits_TW: Tensor, ids_TJ: Tensor, first: int, group: dist.ProcessGroup) -> Tensor:
        width = logits_TW.shape[-1]
        top_T1 = logits_TW.new_full((len(logits_TW), 1), -torch.inf)
        if width:
            top_T1 = logits_TW.amax(dim=-1, keepdim=True)
        dist.all_reduce(top_T1, dist.ReduceOp.MAX, group=group)
        pi_TW = (logits_TW - top_T1).exp()
        total_T1 = pi_TW.sum(dim=-1, keepdim=True)
        dist.all_reduce(total_T1, group=group)
        here_TJ = (ids_TJ >= first) & (ids_TJ < first + width)
        places_TJ = torch.where(here_TJ, ids_TJ - first, 0)
        found_TJ = logits_TW.new_zeros(ids_TJ.shape)
        if width:
            found_TJ = torch.where(here_TJ, logits_TW.gather(-1, places_TJ), 0.0)
        dist.all_reduce(found_TJ, group=group)
        ctx.save_for_backward(pi_TW.div_(total_T1), places_TJ, here_TJ)
        return found_TJ - top_T1 - total_T1.log()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (grad_TJ,) = gradients
        pi_TW, places_TJ, here_TJ = ctx.saved_tensors
        grad_TW = -pi_TW * grad_TJ.sum(dim=-1, keepdim=True)
        if pi_TW.shape[-1]:
            grad_TW.scatter_add_(-1, places_TJ, torch.where(here_TJ, grad_TJ, 0.0))
        return grad_TW, None, None, None
