"""Keys and values by row: row r of every layer belongs to one response.

Axes: B rows, H key heads, L positions, D head width, Q new positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache

SMALLEST_LENGTH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A forward that reads positions [start, end) of one row's prompt."""

    row: int
    start: int
    end: int

    @property
    def rows(self) -> int:
        """How many rows the storage must have."""
        return self.row + 1

    @property
    def length(self) -> int:
        """How many positions a row must have."""
        return self.end

    def write(self, held_BHLD: Tensor, new_1HQD: Tensor) -> Tensor:
        """Store the new positions; returns all that the row has so far, [1, H, end, D]."""
        held_BHLD[self.row : self.row + 1, :, self.start : self.end] = new_1HQD
        return held_BHLD[self.row : self.row + 1, :, : self.end]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ragged:
    """A forward that extends rows [first, first + n) by one position each, at `positions_B`."""

    first: int
    rows_B: Tensor
    positions_B: Tensor
    length: int
    """The longest of the rows, new position included."""

    @property
    def rows(self) -> int:
        """How many rows the storage must have."""
        return self.first + len(self.rows_B)

    def write(self, held_BHLD: Tensor, new_BH1D: Tensor) -> Tensor:
        """Store each row's new position; returns the rows up to the longest, [n, H, length, D]."""
        held_BHLD[self.rows_B, :, self.positions_B] = new_BH1D[:, :, 0]
        return held_BHLD[self.first : self.rows, :, : self.length]


class SlotCache(Cache):  # type: ignore[misc]  # transformers is untyped to the checker
    """What a transformers model is given as `past_key_values`: it writes into rows and returns views.

    Storage is [rows, H, length, D] per layer, for keys and for values. Both grow by doubling when a forward
    first needs more, one layer at a time, so the peak is one layer above the sum. `aim` says what the next
    forward does. Writing is idempotent: a forward that failed may be repeated.
    """

    def __init__(self, *, slots: int, context_length: int) -> None:
        super().__init__(layers=[])
        self._slots = slots
        self._context_length = context_length
        self._held: dict[int, tuple[Tensor, Tensor]] = {}
        self._aim: Chunk | Ragged | None = None

    def aim(self, target: Chunk | Ragged) -> None:
        """Set what the next forward reads and writes."""
        self._aim = target

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Called by each attention layer: store the new keys and values, return those to attend to."""
        aim = self._aimed()
        keys, values = self._held.get(layer_idx, (None, None))
        held = (
            self._grown(keys, key_states, aim.rows, aim.length),
            self._grown(values, value_states, aim.rows, aim.length),
        )
        self._held[layer_idx] = held
        return aim.write(held[0], key_states), aim.write(held[1], value_states)

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a row's first `length` positions over another row; 0 if it was never written."""
        for held in self._tensors() if length else ():
            held[target, :, :length] = held[source, :, :length]

    def take(self, row: int, other: SlotCache, length: int) -> None:
        """Move the first `length` positions of the other cache's row 0 here; the other is empty after it."""
        for layer in sorted(other._held):
            moved = other._held.pop(layer)
            mine = self._held.get(layer, (None, None))
            keys, values = (
                self._grown(held, source, row + 1, length) for held, source in zip(mine, moved, strict=True)
            )
            self._held[layer] = keys, values
            for held, source in ((keys, moved[0]), (values, moved[1])):
                held[row, :, :length] = source[0, :, :length]

    def clear(self) -> None:
        """Free the storage."""
        self._held.clear()

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions before those that this forward adds. Called by transformers."""
        aim = self._aimed()
        return aim.start if isinstance(aim, Chunk) else aim.length - 1

    def _aimed(self) -> Chunk | Ragged:
        if self._aim is None:
            raise ValueError("a forward began before `aim` said what it reads and writes")
        return self._aim

    @property
    def nbytes(self) -> int:
        """Bytes of storage held."""
        return sum(held.nbytes for held in self._tensors())

    def _tensors(self) -> list[Tensor]:
        return [held for pair in self._held.values() for held in pair]

    def _grown(self, held_BHLD: Tensor | None, like_BHQD: Tensor, rows: int, length: int) -> Tensor:
        """`held` if it has room for these rows and positions, else a larger copy of it."""
        if held_BHLD is None:
            return self.allocate(like_BHQD, rows, length)
        old_rows, old_length = held_BHLD.shape[0], held_BHLD.shape[2]
        if old_rows >= rows and old_length >= length:
            return held_BHLD
        grown = self.allocate(like_BHQD, max(rows, old_rows), max(length, old_length))
        grown[:old_rows, :, :old_length] = held_BHLD
        return grown

    def allocate(self, like_BHQD: Tensor, rows: int, length: int) -> Tensor:
        """Zeroed storage for this many rows and positions, both rounded up."""
        _, heads, _, width = like_BHQD.shape
        rows, length = _doubled(1, rows, self._slots), _doubled(SMALLEST_LENGTH, length, self._context_length)
        return like_BHQD.new_zeros(rows, heads, length, width)


def _doubled(start: int, needed: int, most: int) -> int:
    """`start` doubled until it holds `needed`, at most `most`."""
    size = start
    while size < needed:
        size *= 2
    return min(size, most)
