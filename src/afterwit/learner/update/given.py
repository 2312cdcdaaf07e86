"""The rows of a teacher that ran elsewhere, as tensors of one width for the whole batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from afterwit.learner.batch import Item
from afterwit.objective.given_rows import GivenRows


def widest(items: Sequence[Item]) -> int:
    """The most ids of a given row; 0: none is given."""
    return max((len(row.ids) for item in items for row in item.given or () if row is not None), default=0)


def given_rows(item: Item, width: int, device: torch.device) -> GivenRows | None:
    """The item's rows, padded to `width`; None if no token of it is distilled."""
    if item.given is None or not any(row is not None for row in item.given):
        return None
    ids, logprobs, valid = [], [], []
    for token, row in zip(item.student.response, item.given, strict=True):
        found = () if row is None else row.ids
        room = width - len(found)
        ids.append([*found, *[token] * room])
        logprobs.append([*(() if row is None else row.logprobs), *[0.0] * room])
        valid.append([True] * len(found) + [False] * room)
    return GivenRows(
        ids_TK=torch.tensor(ids, device=device),
        logprobs_TK=torch.tensor(logprobs, dtype=torch.float64).to(device),
        valid_TK=torch.tensor(valid, device=device),
    )
