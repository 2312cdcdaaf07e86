"""Attention over slots, as transformers calls it: torch's SDPA, without a copy of the keys and values.

With a mask, transformers copies keys and values once per query head before it calls SDPA. On a CPU, if few
tokens read a long context, that copy took longer than the attention.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

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
    **options: Any,
) -> tuple[Tensor, None]:
    """Queries [B, G*H, Q, D], keys and values [B, H, L, D] to outputs [B, Q, G*H, D]."""
    if query.device.type != "cpu" or attention_mask is None or any(options.get(name) for name in OPTIONS):
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **options
        )
        return found
    out = scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True
    )
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, slot_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
