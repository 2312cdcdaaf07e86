"""Attention over a packed sequence as a sum over its blocks, forward and back. Nothing is [L, L] large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from afterwit.tree.kernels import Kernel
from afterwit.tree.pack import Block


def attend(
    query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[Block], scale: float, kernel: Kernel
) -> Tensor:
    """The output [1, L, G*H, E]; what no block names is not seen."""
    (_, heads, tokens, width), groups = query.shape, query.shape[1] // key.shape[1]
    query_GHLE = query.view(key.shape[1], groups, tokens, width).transpose(0, 1)
    out_GHLE: Tensor = _Attention.apply(query_GHLE, key, value, blocks, scale, kernel)  # type: ignore[no-untyped-call]
    return out_GHLE.permute(2, 1, 0, 3).reshape(1, tokens, heads, width)


class _Attention(Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        blocks: Sequence[Block],
        scale: float,
        kernel: Kernel,
    ) -> Tensor:
        out, lse = _forward(query, *_spread(query, key, value), blocks, scale, kernel)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.how = blocks, scale, kernel
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        pulls = _backward(slope, query, *_spread(query, key, value), out, lse, *ctx.how)
        return *(pull.to(query.dtype) for pull in pulls), None, None, None


def _spread(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values once per query group, without a copy."""
    return key.expand(len(query), -1, -1, -1), value.expand(len(query), -1, -1, -1)


def _forward(
    query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[Block], scale: float, kernel: Kernel
) -> tuple[Tensor, Tensor]:
    groups, heads, tokens, width = query.shape
    exact = torch.float64 if query.dtype is torch.float64 else torch.float32
    out = query.new_empty((tokens, heads, groups, width), dtype=exact).permute(2, 1, 0, 3)
    lse = query.new_empty((groups, heads, tokens), dtype=exact)
    for block in sorted(blocks, key=lambda block: not block.causal):
        rows, seen = slice(block.begin, block.end), slice(block.seen, block.until)
        part, weight = kernel.forward(
            query[:, :, rows], key[:, :, seen], value[:, :, seen], block.causal, scale
        )
        if block.causal:
            out[:, :, rows], lse[:, :, rows] = part, weight
        else:
            _merge(out[:, :, rows], lse[:, :, rows], part, weight)
    return out.to(query.dtype), lse


def _merge(out: Tensor, lse: Tensor, part: Tensor, weight: Tensor) -> None:
    """Add, in place, what was found among other keys."""
    total = torch.logaddexp(lse, weight)
    out.mul_((lse - total).exp_()[..., None]).addcmul_(part.to(out.dtype), (weight - total).exp_()[..., None])
    lse.copy_(total)


def _backward(
    slope: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    lse: Tensor,
    blocks: Sequence[Block],
    scale: float,
    kernel: Kernel,
) -> tuple[Tensor, Tensor, Tensor]:
    d_query = torch.zeros(query.shape, dtype=lse.dtype, device=query.device)
    d_key, d_value = (torch.zeros((1, *key.shape[1:]), dtype=lse.dtype, device=key.device) for _ in range(2))
    for block in blocks:
        rows, seen = slice(block.begin, block.end), slice(block.seen, block.until)
        pulls = kernel.backward(
            slope[:, :, rows],
            query[:, :, rows],
            key[:, :, seen],
            value[:, :, seen],
            out[:, :, rows],
            lse[:, :, rows],
            block.causal,
            scale,
        )
        d_query[:, :, rows] += pulls[0]
        d_key[:, :, seen] += pulls[1].sum(dim=0, keepdim=True)
        d_value[:, :, seen] += pulls[2].sum(dim=0, keepdim=True)
    return d_query, d_key, d_value
