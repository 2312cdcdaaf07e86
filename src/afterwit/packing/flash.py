"""Torch's flash kernels as our `Kernel`: used on a CPU, and on CUDA in half precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

HALVES = (torch.bfloat16, torch.float16)
AMPERE = (8, 0)
"""The compute capability from which CUDA has flash attention."""
WIDEST = 192
"""The widest head whose backward every such device has."""
CHUNK = 256
"""Queries whose scores the portable kernel holds at a time."""

Gradients = tuple[Tensor, Tensor, Tensor]
"""Of query, key and value. Those of key and value by group, or summed over the groups."""


class Inputs(NamedTuple):
    """The inputs of one block. Queries [G, H, Lq, E], keys and values [G, H, Lk, E]."""

    query: Tensor
    key: Tensor
    value: Tensor
    causal: bool
    """The last query sees the last key, and each query no key after its own place."""
    scale: float


class Kernel(NamedTuple):
    """One way to compute a block."""

    forward: Callable[[Inputs], tuple[Tensor, Tensor]]
    """Returns the output [G, H, Lq, E] and the log-sum-exp of the scores [G, H, Lq]."""
    backward: Callable[[Tensor, Inputs, Tensor, Tensor], Gradients]
    """Takes the output's gradient, the inputs, the output and `lse` over all keys."""


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
    found: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        *inputs[:3], 0.0, inputs.causal, scale=inputs.scale
    )
    return found


def _cpu_backward(d_out: Tensor, inputs: Inputs, out: Tensor, lse: Tensor) -> Gradients:
    found: Gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        d_out, *inputs[:3], out, lse, 0.0, inputs.causal, scale=inputs.scale
    )
    return found


def grouped(forward_op: Callable[..., Any], backward_op: Callable[..., Any]) -> Kernel:
    """A kernel of torch's CUDA operators, which take all query heads at once and share keys among groups.

    They are `aten._scaled_dot_product_flash_attention` and its backward, or have the same arguments.
    """

    def flat(of_groups: Tensor) -> Tensor:
        """[G, H, L, ...] as [1, H*G, L, ...], in the order in which models number their query heads."""
        return of_groups.transpose(0, 1).flatten(0, 1).unsqueeze(0)

    def by_group(of_heads: Tensor, groups: int) -> Tensor:
        """The inverse of `flat`."""
        return of_heads.view(-1, groups, *of_heads.shape[2:]).transpose(0, 1)

    def forward(inputs: Inputs) -> tuple[Tensor, Tensor]:
        query, key, value, causal, scale = inputs
        out, lse, *_ = forward_op(flat(query), key[:1], value[:1], 0.0, causal, False, scale=scale)
        return by_group(out, len(query)), by_group(lse, len(query))

    def backward(d_out: Tensor, inputs: Inputs, out: Tensor, lse: Tensor) -> Gradients:
        query, key, value, causal, scale = inputs
        no_dropout = torch.empty(2, dtype=torch.uint64, device=query.device)
        d_query, d_key, d_value = backward_op(
            *(flat(d_out), flat(query), key[:1], value[:1], flat(out), flat(lse).contiguous()),
            *(None, None, query.shape[-2], key.shape[-2]),
            *(0.0, causal, no_dropout, no_dropout),
            scale=scale,
        )
        return by_group(d_query, len(query)), d_key, d_value

    return Kernel(forward, backward)


def precise(tensor: Tensor) -> torch.dtype:
    """The precision of scores and sums."""
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32


def _scores(inputs: Inputs) -> Iterator[tuple[slice, slice, Tensor]]:
    """Chunks of the queries, the keys that any of them sees, and the scaled scores, -inf for unseen keys."""
    query, key, _, causal, scale = inputs
    for start in range(0, query.shape[-2], CHUNK):
        rows = slice(start, min(start + CHUNK, query.shape[-2]))
        seen = slice(0, rows.stop if causal else key.shape[-2])
        scores = (query[:, :, rows] @ key[:, :, seen].transpose(-1, -2)).to(precise(query)) * scale
        if causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
            scores.masked_fill_(hidden.triu(1 + start), -torch.inf)
        yield rows, seen, scores


def _portable_forward(inputs: Inputs) -> tuple[Tensor, Tensor]:
    query, value = inputs.query, inputs.value
    out = torch.empty_like(query)
    lse = query.new_empty(query.shape[:-1], dtype=precise(query))
    for rows, seen, scores in _scores(inputs):
        lse[:, :, rows] = scores.logsumexp(dim=-1)
        weights = (scores - lse[:, :, rows, None]).exp_().to(query.dtype)
        out[:, :, rows] = weights @ value[:, :, seen]
    return out, lse


def _portable_backward(d_out: Tensor, inputs: Inputs, out: Tensor, lse: Tensor) -> Gradients:
    """dV = P' dO; dS = P * (dO V' - rowsum(dO * O)); dQ = dS K; dK = dS' Q.

    FlashAttention (Dao et al. 2022, arXiv:2205.14135), algorithm 4, with P = exp(S - lse).
    """
    query, key, value, _, scale = inputs
    exact = precise(query)
    d_query = torch.empty_like(query)
    d_key, d_value = (torch.zeros(key.shape, dtype=exact, device=key.device) for _ in range(2))
    mean = (d_out.to(exact) * out.to(exact)).sum(dim=-1, keepdim=True)
    for rows, seen, scores in _scores(inputs):
        weights = (scores - lse[:, :, rows, None]).exp_()
        d_value[:, :, seen] += weights.to(d_out.dtype).transpose(-1, -2) @ d_out[:, :, rows]
        d_weights = (d_out[:, :, rows] @ value[:, :, seen].transpose(-1, -2)).to(exact)
        d_scores = (weights * (d_weights - mean[:, :, rows]) * scale).to(query.dtype)
        d_query[:, :, rows] = d_scores @ key[:, :, seen]
        d_key[:, :, seen] += d_scores.transpose(-1, -2) @ query[:, :, rows]
    return d_query, d_key, d_value


FLASH_CPU = Kernel(_cpu_forward, _cpu_backward)
FLASH_CUDA = grouped(
    torch.ops.aten._scaled_dot_product_flash_attention,
    torch.ops.aten._scaled_dot_product_flash_attention_backward,
)
PORTABLE = Kernel(_portable_forward, _portable_backward)
