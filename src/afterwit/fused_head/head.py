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
    down_RD: Tensor | None = None
    up_VR: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank:
    """The two factors; products with them are taken in the precision of logits, whatever they are kept in."""

    down_RD: Tensor
    up_VR: Tensor
    scale: float

    def __post_init__(self) -> None:
        if len(self.down_RD) != self.up_VR.shape[1]:
            raise ValueError(f"A has rank {len(self.down_RD)} but B {self.up_VR.shape[1]}")

    def narrow(self, states_ND: Tensor, dtype: torch.dtype) -> Tensor:
        """scale * x A^T, [N, R]."""
        return torch.mm(states_ND.to(dtype), self.down_RD.t().to(dtype)).mul_(self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """logits = x W^T + scale (x A^T) B^T + b; with a soft cap, cap * tanh(logits / cap) of that.

    States and weights may be half precision. Products are then added up in fp32, and logits are fp32.
    """

    weight_VD: Tensor
    bias_V: Tensor | None = None
    soft_cap: float | None = None
    low_rank: LowRank | None = None
    product: Product | None = None
    """How products with the weight are computed; None: as suits its dtype and device."""

    def __post_init__(self) -> None:
        if self.bias_V is not None and len(self.bias_V) != len(self.weight_VD):
            raise ValueError(f"{len(self.weight_VD)} rows of the head but a bias of {len(self.bias_V)}")
        if (lora := self.low_rank) is not None:
            shape = [len(lora.up_VR), lora.down_RD.shape[1]]
            if shape != list(self.weight_VD.shape):
                raise ValueError(f"a head of {list(self.weight_VD.shape)} but LoRA for one of {shape}")

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
        """The logits, written into `out_NV`."""
        if (product := self.product or product_for(self.weight_VD)) is not None:
            product(out_NV, states_ND.to(self.weight_VD.dtype), self.weight_VD.t(), 0)
        else:
            wide_ND = states_ND.to(out_NV.dtype)
            for block, weight_BD in self._blocks():
                torch.mm(wide_ND, weight_BD.t(), out=out_NV[:, block])
        if self.low_rank is not None:
            narrow_NR = self.low_rank.narrow(states_ND, out_NV.dtype)
            out_NV.addmm_(narrow_NR, self.low_rank.up_VR.t().to(out_NV.dtype))
        if self.bias_V is not None:
            out_NV += self.bias_V
        if self.soft_cap is not None:
            out_NV.div_(self.soft_cap).tanh_().mul_(self.soft_cap)
        return out_NV

    def logits_at(self, states_ND: Tensor, ids_NK: Tensor) -> Tensor:
        """The logits [N, K] at a few ids of each row."""
        weight_NKD = self.weight_VD[ids_NK].to(self.dtype)
        logits_NK = torch.einsum("nd,nkd->nk", states_ND.to(self.dtype), weight_NKD)
        if (lora := self.low_rank) is not None:
            up_NKR = lora.up_VR[ids_NK].to(self.dtype)
            logits_NK += torch.einsum("nr,nkr->nk", lora.narrow(states_ND, self.dtype), up_NKR)
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
        if (lora := self.low_rank) is not None:
            narrow_NR = torch.mm(grad_logits_NV, lora.up_VR.to(dtype)).mul_(lora.scale)
            if gradients.up_VR is not None:
                gradients.up_VR.addmm_(grad_logits_NV.t(), lora.narrow(states_ND, dtype))
            if gradients.down_RD is not None:
                gradients.down_RD.addmm_(narrow_NR.t(), states_ND.to(dtype))
            grad_states_ND += torch.mm(narrow_NR, lora.down_RD.to(dtype))
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
    """The `Product` of bfloat16 on a GPU."""
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
