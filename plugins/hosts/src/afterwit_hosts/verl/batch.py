"""Responses as a batch of verl's: ids that are as long as they are, and nothing of the objective."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils.dataset.dataset_utils import DatasetPadMode
from verl.utils.tensordict_utils import get_tensordict

from afterwit.api.learning import Row

ITEM = "item"
"""The column with a row's item of the update."""
NO_ITEM = -1
"""In that column: a padding row, outside the loss."""


def batch_of(rows: Sequence[tuple[int, Row]], limit: int) -> TensorDict:
    """The rows, each with its item, for passes of about `limit` tokens.

    verl returns the logits of all tokens at temperature 1; the objective applies the temperature.
    """
    ids = [torch.tensor((*row.prompt, *row.response)) for _, row in rows]
    trains = [torch.tensor([0] * len(row.prompt) + [1] * len(row.response)) for _, row in rows]
    return get_tensordict(
        {
            ITEM: torch.tensor([item for item, _ in rows]),
            "input_ids": _jagged(ids),
            "position_ids": _jagged([torch.arange(len(each)) for each in ids]),
            "loss_mask": _jagged(trains),
        },
        {
            "temperature": 1.0,
            "pad_mode": DatasetPadMode.NO_PADDING,
            "use_dynamic_bsz": True,
            "max_token_len_per_gpu": limit,
            "distillation_use_topk": True,
            "distillation_only": True,
        },
    )


def _jagged(rows: list[Tensor]) -> Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
