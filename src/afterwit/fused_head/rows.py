"""The rows of a pass that train, whichever samples they belong to, with what each adds to which mean.

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
    """Where in the pass's hidden states each row is."""
    tau_N: Tensor
    dense_N: Tensor
    """The row's weight in the terms that read the whole distribution."""
    taught: TokenTargets
    weights: dict[str, Tensor]
    """The row's weight [N] in each term that the objective makes of rewards and hints; 0 without the term."""

    def __len__(self) -> int:
        return len(self.at_N)

    def chunks(self, size: int) -> Iterator[Rows]:
        """The rows in order, at most `size` at a time."""
        for start in range(0, len(self), size):
            yield chosen(self, slice(start, start + size))


def joined(parts: Sequence[Any]) -> Any:
    """The rows of all parts, one after the other, in every tensor of a nested data class."""
    return _each(torch.cat, parts)


def chosen(rows: Any, at: Tensor | slice) -> Any:
    """Some of the rows in every tensor of a nested data class."""
    return _each(lambda tensors: tensors[0][at], [rows])


def blank(rows: Any, count: int) -> Any:
    """So many rows of zeros, of the widths that these have."""
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
