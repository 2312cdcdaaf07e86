"""Passes that every rank runs at the same time, because each holds only a part of the model.

A rank that has fewer passes than another runs empty ones: their values are dropped, their gradients are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from afterwit.learner.ranks.ranks import Ranks
from afterwit.learner.scoring.packing import Packing
from afterwit.learner.scoring.rows import Row
from afterwit.learner.scoring.score import response_states

T = TypeVar("T")
Stream = Callable[[PreTrainedModel, Sequence[Row], int, Packing], Iterator[Tensor]]
NOTHING = Row(prompt=(0,), response=(0,))
"""The row of an empty pass."""


def padded(passes: Sequence[T], ranks: Ranks) -> list[T | None]:
    """This rank's passes; in lockstep with None at the end for those that other ranks have more."""
    return [*passes, *[None] * (ranks.most(len(passes)) - len(passes))]


def streamed(
    stream: Stream, model: PreTrainedModel, rows: Sequence[Row], limit: int, packing: Packing, ranks: Ranks
) -> Iterator[Tensor]:
    """The outputs of the rows in order; in lockstep all are run at once, and empty passes after them."""
    if not ranks.lockstep:
        return stream(model, rows, limit, packing)
    mine = len(packing.cut(rows, limit, in_order=True))
    most = ranks.most(mine)
    found = list(stream(model, rows, limit, packing))
    for _ in range(most - mine):
        empty_pass(model)
    return iter(found)


@torch.no_grad()
def empty_pass(model: PreTrainedModel) -> None:
    """A pass without a row."""
    response_states(model, [NOTHING])
