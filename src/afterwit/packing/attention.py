"""Attention over a packed sequence, as transformers calls it.

A model whose attention is set to `NAME` attends as with `sdpa` unless it is called with `tree=`. Its kernels
are torch's flash kernels: used on a CPU, and on CUDA in half precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from afterwit.fused_head.head import AMPERE
from afterwit.packing.pack import Block, Path, inputs, pack
from afterwit.weights.agreement import MULTIPLE
from afterwit.weights.weights import HALVES, widened

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
    """Whether CUDA's flash kernels, which GPUs have from Ampere on, take heads of this width."""
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
        logits_LV = _logits(model, inputs(packed, model.device))[0]
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
    """The logits of each row, in a sequence of its own; those of one length are a batch."""
    found = dict[tuple[int, ...], Tensor]()
    for length in {len(ids) for ids in ROWS}:
        batch = [ids for ids in ROWS if len(ids) == length]
        logits_BTV = _logits(model, {"input_ids": torch.tensor(batch, device=model.device)})
        found |= zip(batch, logits_BTV, strict=True)
    return [found[ids] for ids in ROWS]


@torch.no_grad()
def _logits(model: PreTrainedModel, given: dict[str, Any]) -> Tensor:
    logits_BTV: Tensor = model(**given).logits
    return logits_BTV


def _apart(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return max(float((left - right).abs().max()) for left, right in zip(one, other, strict=True))
