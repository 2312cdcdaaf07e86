"""Keys and values by slot: row r of every layer belongs to one response.

Shapes: B rows, H key heads, L positions, D head width, Q new positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

SMALLEST_LENGTH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One forward reads positions [start, end) of one row's prompt."""

    row: int
    start: int
    end: int

    def write(self, held_BHLD: Tensor, new_1HQD: Tensor) -> Tensor:
        """Keep the new positions; returns all that the row has so far, [1, H, end, D]."""
        held_BHLD[self.row : self.row + 1, :, self.start : self.end] = new_1HQD
        return held_BHLD[self.row : self.row + 1, :, : self.end]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ragged:
    """One forward extends rows [first, first + n) by one position each, at `places_B`."""

    first: int
    rows_B: Tensor
    places_B: Tensor
    length: int
    """The longest of the rows, new position included."""

    def write(self, held_BHLD: Tensor, new_BH1D: Tensor) -> Tensor:
        """Keep each row's new position; returns the rows up to the longest, [n, H, length, D]."""
        held_BHLD[self.rows_B, :, self.places_B] = new_BH1D[:, :, 0]
        return held_BHLD[self.first : self.first + len(self.rows_B), :, : self.length]


class SlotCache(Cache):  # type: ignore[misc]  # transformers is untyped to the checker
    """What a transformers model is given as `past_key_values`: it writes into slots and returns views.

    Storage is [rows, H, length, D] a layer for keys and for values; both grow by doubling, one layer at a
    time, when a forward first needs more, so the peak is one layer above the sum. `aim` says what the next
    forward does. Writing is idempotent: a forward that failed may be repeated.
    """

    def __init__(self, *, slots: int, context_length: int) -> None:
        super().__init__(layers=[])
        self._slots = slots
        self._context_length = context_length
        self._rows = 0
        self._length = 0
        self._held: dict[int, tuple[Tensor, Tensor]] = {}
        self._aim: Chunk | Ragged | None = None

    def aim(self, place: Chunk | Ragged) -> None:
        last = place.row if isinstance(place, Chunk) else place.first + len(place.rows_B) - 1
        longest = place.end if isinstance(place, Chunk) else place.length
        self._rows = max(self._rows, _doubled(1, last + 1, self._slots))
        self._length = max(self._length, _doubled(SMALLEST_LENGTH, longest, self._context_length))
        self._aim = place

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Called by each attention layer: keep the new keys and values, return those to attend to."""
        assert self._aim is not None, "a forward needs an aim"
        held = self._held.get(layer_idx)
        if held is None or held[0].shape[0] < self._rows or held[0].shape[2] < self._length:
            keys, values = held or (None, None)
            held = self._grown(keys, key_states), self._grown(values, value_states)
            self._held[layer_idx] = held
        return self._aim.write(held[0], key_states), self._aim.write(held[1], value_states)

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a row's first `length` positions over another row; 0 where it was never written."""
        for held in self._tensors() if length else ():
            held[target, :, :length] = held[source, :, :length]

    def swap(self, one: int, other: int, length: int) -> None:
        """Exchange the first `length` positions of two rows."""
        for held in self._tensors():
            kept = held[one, :, :length].clone()
            held[one, :, :length] = held[other, :, :length]
            held[other, :, :length] = kept

    def clear(self) -> None:
        """Free the storage."""
        self._held.clear()
        self._rows = self._length = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        assert self._aim is not None, "a forward needs an aim"
        return self._aim.start if isinstance(self._aim, Chunk) else self._aim.length - 1

    @property
    def nbytes(self) -> int:
        """Bytes of storage held."""
        return sum(held.nbytes for held in self._tensors())

    def _tensors(self) -> list[Tensor]:
        return [held for pair in self._held.values() for held in pair]

    def _grown(self, held_BHLD: Tensor | None, new_BHQD: Tensor) -> Tensor:
        _, heads, _, width = new_BHQD.shape
        grown = torch.zeros(
            self._rows, heads, self._length, width, dtype=new_BHQD.dtype, device=new_BHQD.device
        )
        if held_BHLD is not None:
            grown[: held_BHLD.shape[0], :, : held_BHLD.shape[2]] = held_BHLD
        return grown


def _doubled(start: int, needed: int, most: int) -> int:
    """`start` doubled until it holds `needed`, at most `most`."""
    size = start
    while size < needed:
        size *= 2
    return min(size, most)
