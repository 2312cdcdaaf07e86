"""Log-probs of a row's logits at its temperature."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

from afterwit.fused_head.head import sizes_on

LOG2_E = 1.4426950408889634
"""exp x = 2^(x log2 e). On a CPU torch's powers of 2 take a third of the time of its powers of e, and a
thirtieth if the results vanish."""

log = logging.getLogger(__name__)

R = TypeVar("R")

P = ParamSpec("P")


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
        return Softmax(tau_N1=self.tau_N1[at], peak_N1=self.peak_N1[at], log_sum_N1=self.log_sum_N1[at])


def softmax_of(logits_NV: Tensor, tau_N: Tensor, peak_N1: Tensor | None = None) -> Softmax:
    """The softmax of each row. A `peak_N1` that is known already saves a pass."""
    tau_N1, (buffer_NV,) = tau_N.unsqueeze(-1), buffers(logits_NV, 1)
    parts = [
        exp_sums(logits_NV[tile], tau_N1[tile], None if peak_N1 is None else peak_N1[tile], buffer_NV)
        for tile in tiles(logits_NV)
    ]
    peak_N1, sums_N1 = map(torch.cat, zip(*parts, strict=True))
    return Softmax(tau_N1=tau_N1, peak_N1=peak_N1, log_sum_N1=sums_N1.log())


class CompiledOnGpu(Generic[P, R]):
    """A function whose first argument is a tensor: compiled if that is on a GPU, unchanged on a CPU.

    If the compiler fails, which it does before anything is written, the function runs unchanged.
    """

    def __init__(self, plain: Callable[P, R], *, on: str = "cuda", backend: Any = "inductor") -> None:
        self._plain = plain
        self._on = on
        self._backend = backend
        self._compiled: Callable[P, R] | None = None
        self._fails = False
        update_wrapper(self, plain)

    @property
    def ready(self) -> bool:
        """Whether it has been compiled."""
        return self._compiled is not None and not self._fails

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        first: Any = args[0]
        if self._fails or first.device.type != self._on:
            return self._plain(*args, **kwargs)
        from torch._dynamo.exc import TorchDynamoException  # takes seconds: CPUs do without

        self._compiled = self._compiled or torch.compile(self._plain, backend=self._backend)
        try:
            return self._compiled(*args, **kwargs)
        except TorchDynamoException as error:
            self._fails = True
            log.warning(
                "work on logits is not compiled, so a GPU takes several times as long for it: %s", error
            )
            return self._plain(*args, **kwargs)


@CompiledOnGpu
def exp_sums(
    logits_NV: Tensor, tau_N1: Tensor, peak_N1: Tensor | None, buffer_NV: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The largest logit, and the sum of exp((logit - peak) / tau), each [N, 1]."""
    if peak_N1 is None:
        peak_N1 = logits_NV.amax(dim=-1, keepdim=True)
    apart_NV = torch.sub(logits_NV, peak_N1, out=cut(buffer_NV, logits_NV))
    return peak_N1, apart_NV.mul_(LOG2_E / tau_N1).exp2_().sum(dim=-1, keepdim=True)


def exp(values: Tensor, out: Tensor | None = None) -> Tensor:
    return torch.mul(values, LOG2_E, out=out).exp2_()


def tiles(logits_NV: Tensor) -> Iterator[slice]:
    """Rows to work on at a time."""
    step = _tile_rows(logits_NV)
    for start in range(0, len(logits_NV), step):
        yield slice(start, start + step)


def buffers(logits_NV: Tensor, count: int) -> list[Tensor | None]:
    """Uninitialised tiles to work in, the same for all tiles: fresh memory costs a CPU more than the work on
    it. Elsewhere none: there torch reuses its own memory.
    """
    if logits_NV.device.type != "cpu":
        return [None] * count
    rows = min(_tile_rows(logits_NV), len(logits_NV))
    return [logits_NV.new_empty((rows, logits_NV.shape[-1])) for _ in range(count)]


def cut(buffer_NV: Tensor | None, like_NV: Tensor) -> Tensor | None:
    """The rows of a buffer that a tile takes."""
    return None if buffer_NV is None else buffer_NV[: len(like_NV)]


def _tile_rows(logits_NV: Tensor) -> int:
    row_bytes = logits_NV.shape[-1] * logits_NV.element_size()
    return max(1, sizes_on(logits_NV.device).tile_bytes // row_bytes)
