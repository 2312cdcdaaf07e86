"""Attention as transformers calls it: torch's SDPA over slots, and over beginnings that responses share.

With a mask, transformers copies keys and values once per query head before it calls SDPA. On a CPU, if few
tokens read a long context, that copy took longer than the attention.

Axes: B rows, H key heads, G query heads per key head, Q new positions, L slots, D and E head widths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from afterwit.engines.embedded.cache.batch import Batch
from afterwit.tree.attention import tree_attention
from afterwit.tree.flash import kernel_for
from afterwit.tree.kernels import Inputs, Kernel
from afterwit.tree.pack import Block

NAME = "afterwit_slots"
OPTIONS = ("softcap", "s_aux", "position_bias", "dropout")
"""What some models ask of attention beside a mask and a scale: left to transformers."""


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

    `tree` is given if rows that begin alike are one packed sequence.
    `batch` is given if some rows have a beginning elsewhere. ValueError if the model then asks for more than
    a mask and a scale.
    """
    if tree is not None:
        return tree_attention(
            module, query, key, value, attention_mask, tree=tree, scaling=scaling, **options
        )
    special = any(options.get(name) for name in OPTIONS)
    if batch is not None:
        if special or attention_mask is None:
            raise ValueError("this model's attention cannot be split into a beginning and the rest")
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        return with_beginnings(query, key, value, attention_mask, scale, batch, kernel_for(query)), None
    if query.device.type != "cpu" or attention_mask is None or special:
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **options
        )
        return found
    out = scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True
    )
    return out.transpose(1, 2).contiguous(), None


def with_beginnings(
    query: Tensor, key: Tensor, value: Tensor, mask_B11L: Tensor, scale: float, batch: Batch, kernel: Kernel
) -> Tensor:
    """One query a row, over its slots and over its beginning: the parts are weighted by their log-sum-exp.

    All that share a beginning attend to it in one call.
    """
    rows, heads = query.shape[0], key.shape[1]
    query_BHGD = query.reshape(rows, heads, -1, query.shape[-1])
    scores_BHGL = query_BHGD.float() @ key.float().transpose(-1, -2) * scale + mask_B11L
    lse_BHG = scores_BHGL.logsumexp(-1)
    out_BHGE = (scores_BHGL - lse_BHG[..., None]).exp_() @ value.float()
    for shared in batch.shared:
        of_members_BHGD = query_BHGD[shared.members_B]
        members, _, groups, width = of_members_BHGD.shape
        flat_1HQD = of_members_BHGD.transpose(0, 1).reshape(1, heads, members * groups, width)
        part, part_lse = kernel.forward(Inputs(flat_1HQD, *batch.beginning(shared), False, scale))
        part_BHGE = part.view(heads, members, groups, -1).transpose(0, 1)
        part_BHG = part_lse.view(heads, members, groups).transpose(0, 1)
        own_BHG = lse_BHG[shared.members_B]
        total_BHG = torch.logaddexp(own_BHG, part_BHG)
        out_BHGE[shared.members_B] = (
            out_BHGE[shared.members_B] * (own_BHG - total_BHG).exp_()[..., None]
            + part_BHGE * (part_BHG - total_BHG).exp_()[..., None]
        )
    return out_BHGE.to(query.dtype).reshape(rows, 1, -1, value.shape[-1])


AttentionInterface.register(NAME, slot_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
