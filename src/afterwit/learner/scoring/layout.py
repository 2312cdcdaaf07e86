"""Rows as a model's input, and the places in its output that predict their responses.

Axes: B rows of a pass, L tokens, N response tokens of a pass, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from afterwit.learner.scoring.rows import Row
from afterwit.tree.feed import inputs
from afterwit.tree.pack import Path, pack


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One pass."""

    inputs: Mapping[str, Any]
    """Keyword arguments of the model."""
    at_row: Tensor
    at_token: Tensor

    def pick(self, states_BLD: Tensor) -> Tensor:
        """The states [N, D] that predict the responses, row after row."""
        return states_BLD[self.at_row, self.at_token]


def padded(rows: Sequence[Row], device: torch.device) -> Layout:
    """The rows side by side, padded on the right, where causal attention does not look."""
    ids_BL = torch.zeros((len(rows), max(map(len, rows)) - 1), dtype=torch.int64)
    for index, row in enumerate(rows):
        ids_BL[index, : len(row) - 1] = torch.tensor(row.inputs)
    places = [(index, at) for index, row in enumerate(rows) for at in range(row.first, len(row) - 1)]
    at_row, at_token = torch.tensor(places, device=device).unbind(dim=1)
    return Layout(
        inputs={"input_ids": ids_BL.to(device), "use_cache": False}, at_row=at_row, at_token=at_token
    )


def packed(rows: Sequence[Row], device: torch.device) -> Layout:
    """The rows as a tree, in which a shared token occurs once."""
    tree = pack([Path(ids=row.inputs, first=row.first) for row in rows])
    at_token = torch.tensor([place for places in tree.at for place in places], device=device)
    return Layout(inputs=inputs(tree, device), at_row=torch.zeros_like(at_token), at_token=at_token)
