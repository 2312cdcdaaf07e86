"""Attention over a packed sequence as a sum over its blocks, forward and back. Nothing is [L, L] large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from afterwit.tree.kernels import Gradients, Inputs, Kernel
from afterwit.tree.pack import Block


class Blockwise(NamedTuple):
    """How a packed sequence is attended to."""

    blocks: Sequence[Block]
    scale: float
    kernel: Kernel


def attend(
    query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[Block], scale: float, kernel: Kernel
) -> Tensor:
    """Queries [1, G*H, L, E], keys and values [1, H, L, E] to the output [1, L, G*H, E].

    A query sees only the keys that some block pairs it with.
    """
    (_, heads, tokens, width), groups = query.shape, query.shape[1] // key.shape[1]
    query_GHLE = query.view(key.shape[1], groups, tokens, width).transpose(0, 1)
    how = Blockwise(blocks, scale, kernel)
    out_GHLE: Tensor = _Attention.apply(query_GHLE, key, value, how)  # type: ignore[no-untyped-call]
    return out_GHLE.permute(2, 1, 0, 3).reshape(1, tokens, heads, width)


class _Attention(Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, how: Blockwise) -> Tensor:
        out, lse = _forward(query, *_by_group(query, key, value), how)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.how = how
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        gradients = _backward(d_out, (query, *_by_group(query, key, value)), out, lse, ctx.how)
        return *(gradient.to(query.dtype) for gradient in gradients), None


def _by_group(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values once per query group, without a copy."""
    return key.expand(len(query), -1, -1, -1), value.expand(len(query), -1, -1, -1)


def _inputs(tensors: tuple[Tensor, Tensor, Tensor], block: Block, scale: float) -> Inputs:
    query, key, value = tensors
    rows, seen = _slices(block)
    return Inputs(query[:, :, rows], key[:, :, seen], value[:, :, seen], block.causal, scale)


def _slices(block: Block) -> tuple[slice, slice]:
    return slice(block.begin, block.end), slice(block.key_begin, block.key_end)


def _forward(query: Tensor, key: Tensor, value: Tensor, how: Blockwise) -> tuple[Tensor, Tensor]:
    groups, heads, tokens, width = query.shape
    precise = torch.float64 if query.dtype is torch.float64 else torch.float32
    out = query.new_empty((tokens, heads, groups, width), dtype=precise).permute(2, 1, 0, 3)
    lse = query.new_empty((groups, heads, tokens), dtype=precise)
    for block in sorted(how.blocks, key=lambda block: not block.causal):  # causal blocks cover every query
        rows, _ = _slices(block)
        part, part_lse = how.kernel.forward(_inputs((query, key, value), block, how.scale))
        if block.causal:
            out[:, :, rows], lse[:, :, rows] = part, part_lse
        else:
            _merge(out[:, :, rows], lse[:, :, rows], part, part_lse)
    return out.to(query.dtype), lse


def _merge(out: Tensor, lse: Tensor, part: Tensor, part_lse: Tensor) -> None:
    """Add, in place, what was found among other keys."""
    total = torch.logaddexp(lse, part_lse)
    out.mul_((lse - total).exp_()[..., None])
    out.addcmul_(part.to(out.dtype), (part_lse - total).exp_()[..., None])
    lse.copy_(total)


def _backward(
    d_out: Tensor, tensors: tuple[Tensor, Tensor, Tensor], out: Tensor, lse: Tensor, how: Blockwise
) -> Gradients:
    query, key, _ = tensors
    d_query = torch.zeros(query.shape, dtype=lse.dtype, device=query.device)
    d_key, d_value = (torch.zeros((1, *key.shape[1:]), dtype=lse.dtype, device=key.device) for _ in range(2))
    for block in how.blocks:
        rows, seen = _slices(block)
        inputs = _inputs(tensors, block, how.scale)
        found = how.kernel.backward(d_out[:, :, rows], inputs, out[:, :, rows], lse[:, :, rows])
        d_query[:, :, rows] += found[0]
        d_key[:, :, seen] += found[1].sum(dim=0, keepdim=True)
        d_value[:, :, seen] += found[2].sum(dim=0, keepdim=True)
    return d_query, d_key, d_value
