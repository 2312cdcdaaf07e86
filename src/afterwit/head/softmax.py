"""What turns a row's logits into log-probs at its temperature."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

TILE_BYTES = 1 << 20
"""Of logits worked on at a time on a CPU: several passes over them are cheap while they are in its cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax:
    """log pi(v) = (logit(v) - peak) / tau - log_sum; the peak is taken off first, so no digit is lost."""

    tau_N1: Tensor
    peak_N1: Tensor
    """The row's largest logit."""
    log_sum_N1: Tensor
    """log sum of exp((logit - peak) / tau)."""

    def logprobs(self, logits_NJ: Tensor, out: Tensor | None = None) -> Tensor:
        """Log-probs of some or all of each row's logits."""
        return torch.sub(logits_NJ, self.peak_N1, out=out).div_(self.tau_N1).sub_(self.log_sum_N1)

    def rows(self, at: Tensor | slice) -> Softmax:
        """The softmax of some rows."""
        return Softmax(tau_N1=self.tau_N1[at], peak_N1=self.peak_N1[at], log_sum_N1=self.log_sum_N1[at])

    @property
    def logsumexp_N(self) -> Tensor:
        """log sum of exp(logit / tau)."""
        return (self.peak_N1 / self.tau_N1 + self.log_sum_N1).squeeze(-1)


def softmax_of(logits_NV: Tensor, tau_N: Tensor, peak_N1: Tensor | None = None) -> Softmax:
    """The softmax of each row. A `peak_N1` that is known already saves a pass."""
    if peak_N1 is None:
        peak_N1 = logits_NV.amax(dim=-1, keepdim=True)
    tau_N1 = tau_N.unsqueeze(-1)
    sums_N1 = torch.empty_like(peak_N1)
    room_NV = tile_room(logits_NV)
    for tile in tiles(logits_NV):
        apart_NV = torch.sub(logits_NV[tile], peak_N1[tile], out=room_NV[: len(tau_N1[tile])])
        torch.sum(apart_NV.div_(tau_N1[tile]).exp_(), dim=-1, keepdim=True, out=sums_N1[tile])
    return Softmax(tau_N1=tau_N1, peak_N1=peak_N1, log_sum_N1=sums_N1.log_())


def tiles(logits_NV: Tensor) -> Iterator[slice]:
    """Rows to work on at a time: few on a CPU, all elsewhere."""
    step = _tile_rows(logits_NV)
    for start in range(0, len(logits_NV), step):
        yield slice(start, start + step)


def tile_room(logits_NV: Tensor) -> Tensor:
    """An uninitialised tile, to be used for all: fresh memory costs more than the work on it."""
    return logits_NV.new_empty((min(_tile_rows(logits_NV), len(logits_NV)), logits_NV.shape[-1]))


def _tile_rows(logits_NV: Tensor) -> int:
    if logits_NV.device.type != "cpu":
        return max(1, len(logits_NV))
    return max(1, TILE_BYTES // (logits_NV.shape[-1] * logits_NV.element_size()))
