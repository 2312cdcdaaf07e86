"""Keys and values by slot: row r of every layer belongs to one response.

Shapes: B rows, H key heads, L positions, D head width, Q new positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache

SMALLEST_LENGTH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One forward reads positions [start, end) of one row's prompt."""

    row: int
    start: int
    end: int

    @property
    def rows(self) -> int:
        """How many rows must be there."""
        return self.row + 1

    @property
    def length(self) -> int:
        """How many positions a row must have."""
        return self.end

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

    @property
    def rows(self) -> int:
        """How many rows must be there."""
        return self.first + len(self.rows_B)

    def write(self, held_BHLD: Tensor, new_BH1D: Tensor) -> Tensor:
        """Keep each row's new position; returns the rows up to the longest, [n, H, length, D]."""
        held_BHLD[self.rows_B, :, self.places_B] = new_BH1D[:, :, 0]
        return held_BHLD[self.first : self.rows, :, : self.length]


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
        self._held: dict[int, tuple[Tensor, Tensor]] = {}
        self._aim: Chunk | Ragged | None = None

    def aim(self, place: Chunk | Ragged) -> None:
        """Where the next forward reads and writes."""
        self._aim = place

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Called by each attention layer: keep the new keys and values, return those to attend to."""
        assert self._aim is not None, "a forward needs an aim"
        keys, values = self._held.get(layer_idx, (None, None))
        held = self._fitting(keys, key_states), self._fitting(values, value_states)
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

    def get_seq_length(self, layer_idx: int = 0) -> int:
        assert self._aim is not None, "a forward needs an aim"
        return self._aim.start if isinstance(self._aim, Chunk) else self._aim.length - 1

    @property
    def nbytes(self) -> int:
        """Bytes of storage held."""
        return sum(held.nbytes for held in self._tensors())

    def _tensors(self) -> list[Tensor]:
        return [held for pair in self._held.values() for held in pair]

    def _fitting(self, held_BHLD: Tensor | None, new_BHQD: Tensor) -> Tensor:
        """`held` where the aim fits into it, else a larger copy: only this forward's needs count."""
        assert self._aim is not None, "a forward needs an aim"
        rows, length = self._aim.rows, self._aim.length
        if held_BHLD is None:
            return self.allocate(new_BHQD, rows, length)
        if held_BHLD.shape[0] >= rows and held_BHLD.shape[2] >= length:
            return held_BHLD
        grown = self.allocate(new_BHQD, max(rows, held_BHLD.shape[0]), max(length, held_BHLD.shape[2]))
        grown[: held_BHLD.shape[0], :, : held_BHLD.shape[2]] = held_BHLD
        return grown

    def allocate(self, like_BHQD: Tensor, rows: int, length: int) -> Tensor:
        """Room for so many rows and positions, rounded up."""
        _, heads, _, width = like_BHQD.shape
        rows, length = _doubled(1, rows, self._slots), _doubled(SMALLEST_LENGTH, length, self._context_length)
        return like_BHQD.new_zeros(rows, heads, length, width)


def _doubled(start: int, needed: int, most: int) -> int:
    """`start` doubled until it holds `needed`, at most `most`."""
    size = start
    while size < needed:
        size *= 2
    return min(size, most)
