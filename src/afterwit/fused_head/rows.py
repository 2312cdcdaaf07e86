"""The rows of a micro-batch that train, whichever samples they belong to, with their weight in each mean.

Denominators are inside the weights, so rows may be cut anywhere. Rows that no term reads are not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from afterwit.objective.token_targets import TokenTargets


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows that train."""

    at_N: Tensor
    """Each row's index in the micro-batch's hidden states."""
    tau_N: Tensor
    dense_N: Tensor
    """The row's weight in the terms that read the whole distribution."""
    targets: TokenTargets
    weights: dict[str, Tensor]
    """The row's weight [N] in each term that reads a few ids; 0 for a row without the term."""

    def __len__(self) -> int:
        return len(self.at_N)

    def chunks(self, size: int) -> Iterator[Rows]:
        """The rows in order, at most `size` at a time."""
        for start in range(0, len(self), size):
            yield select(self, slice(start, start + size))


def joined(parts: Sequence[Any]) -> Any:
    """The rows of all parts, one after the other, in every tensor of a nested data class."""
    return _each(torch.cat, parts)


def select(rows: Any, at: Tensor | slice) -> Any:
    """Some of the rows in every tensor of a nested data class."""
    return _each(lambda tensors: tensors[0][at], [rows])


def zeros(rows: Any, count: int) -> Any:
    """`count` rows of zeros, of the same widths."""
    return _each(lambda tensors: tensors[0].new_zeros((count, *tensors[0].shape[1:])), [rows])


def _each(change: Callable[[list[Tensor]], Tensor], parts: Sequence[Any]) -> Any:
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return change(list(parts))
    if isinstance(first, dict):
        return {name: _each(change, [part[name] for part in parts]) for name in first}
    columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(first)}
    return type(first)(**{name: _each(change, column) for name, column in columns.items()})
