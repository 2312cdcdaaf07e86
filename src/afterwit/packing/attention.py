"""Attention over a packed sequence, as transformers calls it.

A model whose attention is set to `NAME` attends as with `sdpa` unless it is called with `tree=`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from afterwit.agreement import MULTIPLE
from afterwit.packing.flash import Inputs, Kernel, kernel_for, precise
from afterwit.packing.pack import Block, Path, inputs, pack
from afterwit.weights.widened import widened

NAME = "afterwit_tree"
UNSUPPORTED = ("softcap", "s_aux", "position_bias", "sliding_window")
"""Options of attention that some models use, and this one does not have."""

ROWS = ((0, 1, 2, 3, 4, 5), (0, 1, 2, 4), (0, 1, 2, 4, 3, 1), (0, 1, 5), (2, 1, 0))
"""A trunk, a branch, a branch on it, one next to it, and another tree."""
BY_LENGTH = ("dynamic", "longrope")
"""Kinds of rotary embedding that depend on the longest row of a pass."""
_known: WeakKeyDictionary[PreTrainedModel, str | None] = WeakKeyDictionary()


def tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    tree: Sequence[Block] | None = None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Queries [1, G*H, L, E], keys and values [1, H, L, E] to outputs [1, L, G*H, E].

    ValueError for options that a packed sequence does not support.
    """
    if tree is None:
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **others
        )
        return found
    asked = [name for name in UNSUPPORTED if others.get(name) is not None]
    if asked or others.get("dropout") or attention_mask is not None:
        raise ValueError(f"a packed sequence cannot be attended to with {asked or 'a mask or dropout'}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend(query, key, value, tree, scale, kernel_for(query)), None


AttentionInterface.register(NAME, tree_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


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


class Blockwise(NamedTuple):
    """How a packed sequence is attended to."""

    blocks: Sequence[Block]
    scale: float
    kernel: Kernel

    def cut(self, query: Tensor, key: Tensor, value: Tensor) -> Iterator[tuple[Block, slice, slice, Inputs]]:
        """Each block with its queries, its keys and its inputs. Causal blocks, which cover all queries, come
        first. Keys and values are expanded to the query groups, without a copy."""
        key, value = (shared.expand(len(query), -1, -1, -1) for shared in (key, value))
        for block in sorted(self.blocks, key=lambda block: not block.causal):
            rows, seen = slice(block.begin, block.end), slice(block.key_begin, block.key_end)
            part = query[:, :, rows], key[:, :, seen], value[:, :, seen]
            yield block, rows, seen, Inputs(*part, block.causal, self.scale)


class _Attention(Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, how: Blockwise) -> Tensor:
        groups, heads, tokens, width = query.shape
        exact = precise(query)
        out = query.new_empty((tokens, heads, groups, width), dtype=exact).permute(2, 1, 0, 3)
        lse = query.new_empty((groups, heads, tokens), dtype=exact)
        for block, rows, _, given in how.cut(query, key, value):
            part, part_lse = how.kernel.forward(given)
            if block.causal:
                out[:, :, rows], lse[:, :, rows] = part, part_lse
                continue
            total = torch.logaddexp(lse[:, :, rows], part_lse)
            out[:, :, rows].mul_((lse[:, :, rows] - total).exp_()[..., None])
            out[:, :, rows].addcmul_(part.to(exact), (part_lse - total).exp_()[..., None])
            lse[:, :, rows] = total
        out = out.to(query.dtype)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.how = how
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        d_query = torch.zeros(query.shape, dtype=lse.dtype, device=query.device)
        d_key, d_value = (torch.zeros(key.shape, dtype=lse.dtype, device=key.device) for _ in range(2))
        for _, rows, seen, given in ctx.how.cut(query, key, value):
            found = ctx.how.kernel.backward(d_out[:, :, rows], given, out[:, :, rows], lse[:, :, rows])
            d_query[:, :, rows] += found[0]
            d_key[:, :, seen] += found[1].sum(dim=0, keepdim=True)
            d_value[:, :, seen] += found[2].sum(dim=0, keepdim=True)
        return *(gradient.to(query.dtype) for gradient in (d_query, d_key, d_value)), None


def unsupported_reason(model: PreTrainedModel, attention: str = NAME) -> str | None:
    """Why the model cannot run packed rows. None if it can; its attention is then set up for them.

    `attention` is the name of one that takes `tree=`.
    """
    if model not in _known:
        _known[model] = _reason_in_config(model) or _reason_in_test(model, attention)
    return _known[model]


def _reason_in_config(model: PreTrainedModel) -> str | None:
    config = model.config.get_text_config()
    kinds = sorted(set(getattr(config, "layer_types", None) or ()) - {"full_attention"})
    if kinds:
        return f"it has layers of {', '.join(kinds)}"
    window = getattr(config, "sliding_window", None)
    if not hasattr(config, "layer_types") and window and getattr(config, "use_sliding_window", True):
        return f"its attention has a window of {window} tokens"
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") in BY_LENGTH:
        return f"its rotary embedding is {rope['rope_type']}: it depends on the longest row of a pass"
    if not getattr(model, "_supports_attention_backend", False):
        return "its attention cannot be replaced"
    return None


def _reason_in_test(model: PreTrainedModel, attention: str) -> str | None:
    """How packing changes the logits of `ROWS`; None if by no more than rounding.

    In half precision that is three times the distance of single rows from what the model computes in float32.
    """
    before = model.config._attn_implementation
    wide, alone = widened(model), _alone(model)
    exact = alone if wide is model else _alone(wide)
    packed = pack([Path(ids=ids, first=0) for ids in ROWS])
    model.set_attn_implementation(attention)
    try:
        logits_LV = _logits(model, inputs(packed, model.device))
    except (RuntimeError, TypeError, ValueError) as error:  # a foreign model may raise anything here
        model.set_attn_implementation(before)
        return f"packed rows fail: {error}"
    off, noise = _apart([logits_LV[at] for at in packed.at], exact), _apart(alone, exact)
    rounding = torch.finfo(alone[0].dtype).eps ** 0.5 * max(float(each.abs().max()) for each in alone)
    if off <= (MULTIPLE * noise if noise else rounding):
        return None
    model.set_attn_implementation(before)
    return f"packed rows give other logits than single ones: {off:.2g} off, single ones {noise:.2g}"


def _alone(model: PreTrainedModel) -> list[Tensor]:
    return [_logits(model, {"input_ids": torch.tensor([ids], device=model.device)}) for ids in ROWS]


@torch.no_grad()
def _logits(model: PreTrainedModel, given: dict[str, Any]) -> Tensor:
    logits: Tensor = model(**given).logits[0]
    return logits


def _apart(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return max(float((left - right).abs().max()) for left, right in zip(one, other, strict=True))
