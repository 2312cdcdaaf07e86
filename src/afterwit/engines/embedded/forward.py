"""The engine's three forwards over any causal LM of transformers: read a text on, extend rows, score.

The model's own code runs unchanged. It gets a `Row` or a `Batch` and a 4-D additive mask, which transformers
passes on to the attention. Axes: B rows, Q new positions, L positions attended to, V vocabulary,
T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from afterwit.engines.embedded.cache import Batch, Beginning, Row
from afterwit.packing.attention import Inputs, Kernel, kernel_for, tree_attention
from afterwit.packing.pack import Block

NAME = "afterwit_slots"
OPTIONS = ("softcap", "s_aux", "position_bias", "dropout")
"""Attention options of some models, in addition to a mask and a scale: left to transformers."""


def prefill(module: nn.Module, row: Row, ids: Sequence[int], *, keep: int = 1) -> Tensor:
    """Read `ids` after those that the row holds. Logits of the last `keep` positions (0: all), [keep, V]."""
    weight = next(module.parameters())
    device, start, end = weight.device, len(row.ids), len(row.ids) + len(ids)
    row.aim(len(ids))
    mask_QL = weight.new_full((len(ids), end), -torch.inf).triu(start + 1)
    logits_1QV: Tensor = module(
        input_ids=torch.tensor([list(ids)], device=device),
        position_ids=torch.arange(start, end, device=device)[None],
        attention_mask=mask_QL[None, None],
        past_key_values=row,
        use_cache=True,
        logits_to_keep=keep,
    ).logits
    row.ids.extend(ids)
    return logits_1QV[0]


def decode(
    module: nn.Module,
    batch: Batch,
    first: int,
    ids: Sequence[int],
    positions: Sequence[int],
    beginnings: Sequence[Beginning | None] = (),
) -> Tensor:
    """Extend row first + i by ids[i] at positions[i]. Each row's next-token logits, [B, V].

    A row that has a beginning holds only the positions after it.
    """
    weight = next(module.parameters())
    device = weight.device
    beyond_BL = batch.aim(first, positions, beginnings or [None] * len(ids), device)
    mask_BL = weight.new_zeros(beyond_BL.shape).masked_fill_(beyond_BL, -torch.inf)
    elsewhere = {"batch": batch} if batch.shared else {}
    logits_B1V: Tensor = module(
        input_ids=torch.tensor(ids, device=device)[:, None],
        position_ids=torch.tensor(positions, device=device)[:, None],
        attention_mask=mask_BL[:, None, None],
        past_key_values=batch,
        use_cache=True,
        logits_to_keep=1,
        **elsewhere,
    ).logits
    return logits_B1V[:, -1]


@torch.inference_mode()
def score(module: nn.Module, ids: Sequence[int], *, chunk: int = 256) -> list[float]:
    """Log-probs at temperature 1 of ids[1:], [T - 1], by the code that serves: a row in pieces."""
    row = Row(context_length=len(ids), coming=len(ids))
    scored: list[float] = []
    for start in range(0, len(ids) - 1, chunk):
        part = ids[start : min(start + chunk, len(ids) - 1)]
        logprobs_QV = prefill(module, row, part, keep=0).float().log_softmax(-1)
        targets_Q = torch.tensor(ids[start + 1 : start + 1 + len(part)], device=logprobs_QV.device)
        scored += logprobs_QV.gather(-1, targets_Q[:, None])[:, 0].tolist()
    return scored


def slot_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    batch: Batch | None = None,
    tree: Sequence[Block] | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Queries [B, H*G, Q, D], keys and values [B, H, L, D] to outputs [B, Q, H*G, D].

    `tree` is given if rows with a common prefix are one packed sequence, `batch` if some rows have a
    beginning in another row. ValueError if the model then needs more than a mask and a scale.
    """
    special = any(options.get(name) for name in OPTIONS)
    if batch is not None:
        if special or attention_mask is None:
            raise ValueError("this model's attention cannot be split into a beginning and the rest")
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        return with_beginnings(query, key, value, attention_mask, scale, batch, kernel_for(query)), None
    if tree is not None or query.device.type != "cpu" or attention_mask is None or special:
        return tree_attention(
            module, query, key, value, attention_mask, tree=tree, scaling=scaling, **options
        )
    out = scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True
    )
    return out.transpose(1, 2).contiguous(), None


def with_beginnings(
    query: Tensor, key: Tensor, value: Tensor, mask_B11L: Tensor, scale: float, batch: Batch, kernel: Kernel
) -> Tensor:
    """One query a row, over its slots and over its beginning: the parts are weighted by their log-sum-exp.

    Rows with the same beginning attend to it in one call.
    """
    rows, heads = query.shape[0], key.shape[1]
    query_BHGD = query.reshape(rows, heads, -1, query.shape[-1])
    scores_BHGL = query_BHGD.float() @ key.float().transpose(-1, -2) * scale + mask_B11L
    lse_BHG = scores_BHGL.logsumexp(-1)
    out_BHGE = (scores_BHGL - lse_BHG[..., None]).exp_() @ value.float()
    for (row, length), members_B in batch.shared:
        of_members_BHGD, own_BHG = query_BHGD[members_B], lse_BHG[members_B]
        members, _, groups, width = of_members_BHGD.shape
        flat_1HQD = of_members_BHGD.transpose(0, 1).reshape(1, heads, members * groups, width)
        part, part_lse = kernel.forward(Inputs(flat_1HQD, *row.layer(batch.layer, length), False, scale))
        part_BHGE = part.view(heads, members, groups, -1).transpose(0, 1)
        part_BHG = part_lse.view(heads, members, groups).transpose(0, 1)
        total_BHG = torch.logaddexp(own_BHG, part_BHG)
        out_BHGE[members_B] = (
            out_BHGE[members_B] * (own_BHG - total_BHG).exp_()[..., None]
            + part_BHGE * (part_BHG - total_BHG).exp_()[..., None]
        )
    return out_BHGE.to(query.dtype).reshape(rows, 1, -1, value.shape[-1])


AttentionInterface.register(NAME, slot_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
