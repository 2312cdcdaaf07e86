"""The three matrix products of a head with its weight: logits, and the gradients of states and weight.

A weight as precise as its logits is multiplied as it is. One of half precision is either converted to fp32,
block by block, or multiplied on tensor cores, which add up in fp32. Tensor cores also round the gradient of
logits: each number to 2^-8 of itself, independently of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 8192
"""Rows of a half-precision weight that are converted to fp32 at a time."""
AMPERE = (8, 0)
"""The compute capability from which tensor cores know bfloat16."""

Accumulate = Callable[[Tensor, Tensor, Tensor, int], object]
"""(into, a, b, keep): a @ b added up in `into`'s precision, on top of `keep` times what is there."""


class Matmuls(NamedTuple):
    forward: Callable[[Tensor, Tensor, Tensor], None]
    """(states [N, D], weight [V, D], logits [N, V]): the logits are written."""
    backward: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
    """(gradient of logits [N, V], states, weight, buffer [V, D] or none) -> gradient of states [N, D], in the
    precision of that of logits; the weight's is added to the buffer."""


def matmuls_for(weight_VD: Tensor) -> Matmuls:
    """Tensor cores if the device has them for the weight's dtype."""
    fits = weight_VD.dtype is torch.bfloat16 and weight_VD.device.type == "cuda"
    nvidia = torch.version.hip is None  # ROCm calls its devices cuda as well
    if fits and nvidia and torch.cuda.get_device_capability(weight_VD.device) >= AMPERE:
        return MIXED
    return UPCAST


def _upcast_forward(states_ND: Tensor, weight_VD: Tensor, logits_NV: Tensor) -> None:
    states_ND = states_ND.to(logits_NV.dtype)
    for block, weight_BD in _blocks(weight_VD, logits_NV.dtype):
        torch.mm(states_ND, weight_BD.t(), out=logits_NV[:, block])


def _upcast_backward(
    grad_logits_NV: Tensor, states_ND: Tensor, weight_VD: Tensor, gradient_VD: Tensor | None
) -> Tensor:
    if gradient_VD is not None:
        gradient_VD.addmm_(grad_logits_NV.t(), states_ND.to(grad_logits_NV.dtype))
    grad_states_ND = grad_logits_NV.new_zeros(states_ND.shape)
    for block, weight_BD in _blocks(weight_VD, grad_logits_NV.dtype):
        grad_states_ND.addmm_(grad_logits_NV[:, block], weight_BD)
    return grad_states_ND


def _blocks(weight_VD: Tensor, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
    """The weight in this precision: as it is, or block by block of the vocabulary."""
    step = len(weight_VD) if weight_VD.dtype is dtype else BLOCK
    for start in range(0, len(weight_VD), step):
        block = slice(start, start + step)
        yield block, weight_VD[block].to(dtype)


def mixed(accumulate: Accumulate) -> Matmuls:
    """Matmuls of what has the weight's precision, by a product that adds up in that of logits."""

    def forward(states_ND: Tensor, weight_VD: Tensor, logits_NV: Tensor) -> None:
        accumulate(logits_NV, states_ND.to(weight_VD.dtype), weight_VD.t(), 0)

    def backward(
        grad_logits_NV: Tensor, states_ND: Tensor, weight_VD: Tensor, gradient_VD: Tensor | None
    ) -> Tensor:
        rounded_NV = grad_logits_NV.to(weight_VD.dtype)
        if gradient_VD is not None:
            accumulate(gradient_VD, rounded_NV.t(), states_ND.to(weight_VD.dtype), 1)
        grad_states_ND = grad_logits_NV.new_empty(states_ND.shape)
        accumulate(grad_states_ND, rounded_NV, weight_VD, 0)
        return grad_states_ND

    return Matmuls(forward, backward)


def _on_tensor_cores(into: Tensor, a: Tensor, b: Tensor, keep: int) -> None:
    torch.addmm(into, a, b, beta=keep, out_dtype=into.dtype, out=into)


UPCAST = Matmuls(_upcast_forward, _upcast_backward)
MIXED = mixed(_on_tensor_cores)
