"""Torch's flash kernels as our `Kernel`: used on a CPU, and on CUDA in half precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from afterwit.tree.kernels import PORTABLE, Gradients, Inputs, Kernel

HALVES = (torch.bfloat16, torch.float16)
AMPERE = (8, 0)
"""The compute capability from which CUDA has flash attention."""
WIDEST = 192
"""The widest head whose backward every such device has."""


def kernel_for(query: Tensor) -> Kernel:
    """Torch's flash kernels if they take these queries, else matrix products in chunks."""
    if query.device.type == "cpu":
        return FLASH_CPU
    if query.device.type == "cuda" and torch.backends.cuda.is_flash_attention_available():
        capability = torch.cuda.get_device_capability(query.device)
        return FLASH_CUDA if flashes(query.dtype, query.shape[-1], capability) else PORTABLE
    return PORTABLE


def flashes(dtype: torch.dtype, width: int, capability: tuple[int, int]) -> bool:
    """Whether CUDA's flash kernels take heads of this width."""
    return dtype in HALVES and width % 8 == 0 and width <= WIDEST and capability >= AMPERE


def _cpu_forward(inputs: Inputs) -> tuple[Tensor, Tensor]:
    query, key, value, causal, scale = inputs
    found: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, scale=scale
    )
    return found


def _cpu_backward(d_out: Tensor, inputs: Inputs, out: Tensor, lse: Tensor) -> Gradients:
    query, key, value, causal, scale = inputs
    found: Gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        d_out, query, key, value, out, lse, 0.0, causal, scale=scale
    )
    return found


def grouped(forward_op: Callable[..., Any], backward_op: Callable[..., Any]) -> Kernel:
    """A kernel of torch's CUDA operators, which take all query heads at once and share keys among groups.

    They are `aten._scaled_dot_product_flash_attention` and its backward, or have the same arguments.
    """

    def forward(inputs: Inputs) -> tuple[Tensor, Tensor]:
        query, key, value, causal, scale = inputs
        out, lse, *_ = forward_op(_flat(query), key[:1], value[:1], 0.0, causal, False, scale=scale)
        return _by_group(out, len(query)), _by_group(lse, len(query))

    def backward(d_out: Tensor, inputs: Inputs, out: Tensor, lse: Tensor) -> Gradients:
        query, key, value, causal, scale = inputs
        no_dropout = torch.empty(2, dtype=torch.uint64, device=query.device)
        d_query, d_key, d_value = backward_op(
            *(_flat(d_out), _flat(query), key[:1], value[:1], _flat(out), _flat(lse).contiguous()),
            *(None, None, query.shape[-2], key.shape[-2]),
            *(0.0, causal, no_dropout, no_dropout),
            scale=scale,
        )
        return _by_group(d_query, len(query)), d_key, d_value

    return Kernel(forward, backward)


def _flat(of_groups: Tensor) -> Tensor:
    """[G, H, L, ...] as [1, H*G, L, ...], in the order in which models number their query heads."""
    return of_groups.transpose(0, 1).flatten(0, 1).unsqueeze(0)


def _by_group(of_heads: Tensor, groups: int) -> Tensor:
    """The inverse of `_flat`."""
    return of_heads.view(-1, groups, *of_heads.shape[2:]).transpose(0, 1)


FLASH_CPU = Kernel(_cpu_forward, _cpu_backward)
FLASH_CUDA = grouped(
    torch.ops.aten._scaled_dot_product_flash_attention,
    torch.ops.aten._scaled_dot_product_flash_attention_backward,
)
