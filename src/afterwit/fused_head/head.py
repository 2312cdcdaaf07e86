"""The language model's head: hidden states to logits, and a gradient of logits back through it.

Axes in this folder: N rows (hidden states), D their width, V vocabulary, K kept ids, J ids read of a row,
S kept ids and perhaps the tail, M rows of teachers, H hints, T tokens of one response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 8192
"""Rows of a half-precision weight that are converted to fp32 at a time."""
AMPERE = (8, 0)
"""The compute capability from which tensor cores know bfloat16."""
Product = Callable[[Tensor, Tensor, Tensor, int], object]
"""(into, a, b, keep): a @ b of half precision, added up in `into`'s, on top of `keep` times what is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadGradients:
    """Buffers for the gradients of a head, in the precision of its logits; `None`: that part is frozen."""

    weight_VD: Tensor | None = None
    bias_V: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """logits = x W^T + b; with a soft cap, cap * tanh(logits / cap) of that.

    States and weights may be half precision. Products are then added up in fp32, and logits are fp32.
    """

    weight_VD: Tensor
    bias_V: Tensor | None = None
    soft_cap: float | None = None
    product: Product | None = None
    """How products with the weight are computed; None: as suits its dtype and device."""

    def __post_init__(self) -> None:
        if self.bias_V is not None and len(self.bias_V) != len(self.weight_VD):
            raise ValueError(f"{len(self.weight_VD)} rows of the head but a bias of {len(self.bias_V)}")

    @property
    def dtype(self) -> torch.dtype:
        """Of logits: fp64 for fp64 weights, else fp32."""
        return torch.float64 if self.weight_VD.dtype is torch.float64 else torch.float32

    @property
    def device(self) -> torch.device:
        return self.weight_VD.device

    def buffer(self, rows: int) -> Tensor:
        """An uninitialised [rows, V] to write logits into."""
        return self.weight_VD.new_empty((rows, len(self.weight_VD)), dtype=self.dtype)

    def logits(self, states_ND: Tensor, out_NV: Tensor) -> Tensor:
        if (product := self.product or product_for(self.weight_VD)) is not None:
            product(out_NV, states_ND.to(self.weight_VD.dtype), self.weight_VD.t(), 0)
        else:
            wide_ND = states_ND.to(out_NV.dtype)
            for block, weight_BD in self._blocks():
                torch.mm(wide_ND, weight_BD.t(), out=out_NV[:, block])
        if self.bias_V is not None:
            out_NV += self.bias_V
        if self.soft_cap is not None:
            out_NV.div_(self.soft_cap).tanh_().mul_(self.soft_cap)
        return out_NV

    def logits_at(self, states_ND: Tensor, ids_NK: Tensor) -> Tensor:
        """The logits [N, K] at a few ids of each row."""
        weight_NKD = self.weight_VD[ids_NK].to(self.dtype)
        logits_NK = torch.einsum("nd,nkd->nk", states_ND.to(self.dtype), weight_NKD)
        if self.bias_V is not None:
            logits_NK += self.bias_V[ids_NK]
        return logits_NK if self.soft_cap is None else self.soft_cap * torch.tanh(logits_NK / self.soft_cap)

    def backward(self, grad_logits_NV: Tensor, states_ND: Tensor, gradients: HeadGradients) -> Tensor:
        """The gradient [N, D] of the states; those of the head's own parts are added to `gradients`.

        That of the logits is of those before the soft cap.
        """
        weight_VD, dtype = self.weight_VD, grad_logits_NV.dtype
        if gradients.bias_V is not None:
            gradients.bias_V.add_(grad_logits_NV.sum(dim=0))
        if (product := self.product or product_for(weight_VD)) is not None:
            rounded_NV = grad_logits_NV.to(weight_VD.dtype)
            if gradients.weight_VD is not None:
                product(gradients.weight_VD, rounded_NV.t(), states_ND.to(weight_VD.dtype), 1)
            grad_states_ND = grad_logits_NV.new_empty(states_ND.shape)
            product(grad_states_ND, rounded_NV, weight_VD, 0)
        else:
            if gradients.weight_VD is not None:
                gradients.weight_VD.addmm_(grad_logits_NV.t(), states_ND.to(dtype))
            grad_states_ND = grad_logits_NV.new_zeros(states_ND.shape)
            for block, weight_BD in self._blocks():
                grad_states_ND.addmm_(grad_logits_NV[:, block], weight_BD)
        return grad_states_ND

    def _blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """The weight in the precision of logits: as it is, or block by block of the vocabulary."""
        weight_VD = self.weight_VD
        step = len(weight_VD) if weight_VD.dtype is self.dtype else BLOCK
        for start in range(0, len(weight_VD), step):
            block = slice(start, start + step)
            yield block, weight_VD[block].to(self.dtype)


def through_soft_cap(soft_cap: float | None, grad: Tensor, logits: Tensor) -> Tensor:
    """A gradient of capped logits becomes, in place, that of the logits before."""
    return grad if soft_cap is None else grad.mul_(1 - (logits / soft_cap).square())


def product_for(weight_VD: Tensor) -> Product | None:
    """Tensor cores if the device has them for the weight's dtype. None: the weight is converted to fp32."""
    fits = weight_VD.dtype is torch.bfloat16 and weight_VD.device.type == "cuda"
    nvidia = torch.version.hip is None  # ROCm calls its devices cuda as well
    if fits and nvidia and torch.cuda.get_device_capability(weight_VD.device) >= AMPERE:
        return on_tensor_cores
    return None


def on_tensor_cores(into: Tensor, a: Tensor, b: Tensor, keep: int) -> None:
    torch.addmm(into, a, b, beta=keep, out_dtype=into.dtype, out=into)


class Sizes(NamedTuple):
    chunk: int
    """Rows whose logits exist at once: enough that their matrix products run at full speed."""
    tile_bytes: int
    """Of logits worked on at a time."""


CPU = Sizes(chunk=256, tile_bytes=1 << 21)
"""Several passes over a tile are cheap while it is in the cache."""
GPU = Sizes(chunk=1024, tile_bytes=1 << 28)
"""dW is read and written once a chunk: below about 1000 rows that takes longer than the products. A tile is
work enough to hide its launch, and three tiles are small next to a chunk."""


def sizes_on(device: torch.device) -> Sizes:
    return CPU if device.type == "cpu" else GPU
