"""The language model's head: hidden states to logits, and a gradient of logits back through it.

Axes in this folder: N rows (hidden states), D their width, V vocabulary, K kept ids, J ids read of a row,
S kept ids and perhaps the tail, M rows of teachers, H hints, T tokens of one response.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from afterwit.fused_head.low_rank import LowRank
from afterwit.fused_head.matmuls import Matmuls, matmuls_for


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadGradients:
    """Where the gradients of a head add up, in the precision of its logits; `None`: that part is frozen."""

    weight_VD: Tensor | None = None
    bias_V: Tensor | None = None
    down_RD: Tensor | None = None
    up_VR: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """logits = x W^T + scale (x A^T) B^T + b; with a soft cap, cap * tanh(logits / cap) of that.

    States and weights may be half precision. Products are then added up in fp32, and logits are fp32.
    """

    weight_VD: Tensor
    bias_V: Tensor | None = None
    soft_cap: float | None = None
    low_rank: LowRank | None = None
    matmuls: Matmuls | None = None
    """How the products with the weight are computed; None: as suits its dtype and device."""

    def __post_init__(self) -> None:
        if self.bias_V is not None and len(self.bias_V) != len(self.weight_VD):
            raise ValueError(f"{len(self.weight_VD)} rows of the head but a bias of {len(self.bias_V)}")
        if self.low_rank is not None and self.low_rank.shape != tuple(self.weight_VD.shape):
            raise ValueError(
                f"a head of {list(self.weight_VD.shape)} but LoRA for one of {list(self.low_rank.shape)}"
            )

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
        self._matmuls().forward(states_ND, self.weight_VD, out_NV)
        if self.low_rank is not None:
            self.low_rank.add(states_ND, out_NV)
        if self.bias_V is not None:
            out_NV += self.bias_V
        if self.soft_cap is not None:
            out_NV.div_(self.soft_cap).tanh_().mul_(self.soft_cap)
        return out_NV

    def logits_at(self, states_ND: Tensor, ids_NK: Tensor) -> Tensor:
        """The logits [N, K] at a few ids of each row."""
        weight_NKD = self.weight_VD[ids_NK].to(self.dtype)
        logits_NK = torch.einsum("nd,nkd->nk", states_ND.to(self.dtype), weight_NKD)
        if self.low_rank is not None:
            logits_NK += self.low_rank.at(states_ND, ids_NK, self.dtype)
        if self.bias_V is not None:
            logits_NK += self.bias_V[ids_NK]
        return logits_NK if self.soft_cap is None else self.soft_cap * torch.tanh(logits_NK / self.soft_cap)

    def before_soft_cap(self, grad: Tensor, logits: Tensor) -> Tensor:
        """A gradient of logits becomes, in place, that of what the soft cap was applied to."""
        return through_soft_cap(self.soft_cap, grad, logits)

    def backward(self, grad_logits_NV: Tensor, states_ND: Tensor, gradients: HeadGradients) -> Tensor:
        """The gradient [N, D] of the states; those of the head's own parts are added to `gradients`."""
        if gradients.bias_V is not None:
            gradients.bias_V.add_(grad_logits_NV.sum(dim=0))
        grad_states_ND = self._matmuls().backward(
            grad_logits_NV, states_ND, self.weight_VD, gradients.weight_VD
        )
        if self.low_rank is not None:
            grad_states_ND += self.low_rank.backward(
                grad_logits_NV, states_ND, gradients.down_RD, gradients.up_VR
            )
        return grad_states_ND

    def _matmuls(self) -> Matmuls:
        return self.matmuls or matmuls_for(self.weight_VD)


def through_soft_cap(soft_cap: float | None, grad: Tensor, logits: Tensor) -> Tensor:
    """A gradient of capped logits becomes, in place, that of the logits before."""
    return grad if soft_cap is None else grad.mul_(1 - (logits / soft_cap).square())
