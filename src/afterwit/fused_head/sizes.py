"""How many rows of logits exist, and are worked on, at a time: what suits the device."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Sizes(NamedTuple):
    chunk: int
    """Rows whose logits exist at one time: enough that their matrix products run at full speed."""
    tile_bytes: int
    """Of logits worked on at a time."""


CPU = Sizes(chunk=256, tile_bytes=1 << 21)
"""Several passes over a tile are cheap while it is in the cache."""
GPU = Sizes(chunk=1024, tile_bytes=1 << 28)
"""dW is read and written once a chunk: below about 1000 rows that takes longer than the products. A tile is
work enough to hide its launch, and three of them are little beside a chunk."""


def sizes_on(device: torch.device) -> Sizes:
    """The sizes for a device."""
    return CPU if device.type == "cpu" else GPU
