"""The arguments with which a transformers model runs a packed sequence."""

from __future__ import annotations

from typing import Any

import torch

from afterwit.tree.pack import Pack


def inputs(packed: Pack, device: torch.device) -> dict[str, Any]:
    """Keyword arguments of the model's forward.

    The mask is all ones: without one, transformers reads positions that start again as separate rows, and
    builds a mask [L, L] that keeps them apart.
    """
    ids_1L = torch.tensor([packed.ids], device=device)
    return {
        "input_ids": ids_1L,
        "position_ids": torch.tensor([packed.depths], device=device),
        "attention_mask": torch.ones_like(ids_1L),
        "tree": packed.blocks,
        "use_cache": False,
    }
