"""Attention over a packed sequence, as transformers calls it.

A model whose attention is set to `NAME` attends as with `sdpa` unless it is called with `tree=`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from afterwit.tree.blockwise import attend
from afterwit.tree.flash import kernel_for
from afterwit.tree.pack import Block

NAME = "afterwit_tree"
UNSUPPORTED = ("softcap", "s_aux", "position_bias", "sliding_window")
"""Options of attention that some models use, and this one does not have."""


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
