"""Keys and values of the responses that decode together.

Axes: B rows, H key heads, L slots, D head width. Row r holds the positions of one response from some
beginning on: if its text has a long beginning, that stays in a `Row` and several responses may share it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from afterwit.engines.embedded.cache.row import Layer, Row

SMALLEST_LENGTH = 256


class Beginning(NamedTuple):
    """The first `length` positions of a row, which a response attends to where they are."""

    row: Row
    length: int


class Shared(NamedTuple):
    """A beginning, and the places of the rows in the forward that attend to it, [B]."""

    beginning: Beginning
    members_B: Tensor


class Batch(Cache):  # type: ignore[misc]  # transformers is untyped to the checker
    """What a transformers model is given as `past_key_values` while responses decode, one position each.

    Storage is [rows, H, length, D] per layer, for keys and for values. Both grow by doubling when a forward
    first needs more, one layer at a time, so the peak is one layer above the sum. `aim` says what the next
    forward does. Writing is idempotent: a forward that failed may be repeated.
    """

    def __init__(self, *, slots: int, context_length: int) -> None:
        super().__init__(layers=[])
        self._slots = slots
        self._context_length = context_length
        self._held: dict[int, Layer] = {}
        self._first = self._length = 0
        self._rows_B = self._slots_B = torch.empty(0)
        self._layer = 0
        self.shared: list[Shared] = []
        """What this forward attends to beside the rows' own slots."""

    def aim(
        self,
        first: int,
        positions: Sequence[int],
        beginnings: Sequence[Beginning | None],
        device: torch.device,
    ) -> Tensor:
        """The next forward extends row first + i at positions[i]. Returns which slots it hides, [B, L]."""
        slots = [
            position - (beginning.length if beginning else 0)
            for position, beginning in zip(positions, beginnings, strict=True)
        ]
        self._first, self._length = first, max(slots) + 1
        self._slots_B = torch.tensor(slots, device=device)
        self._rows_B = torch.arange(first, first + len(slots), device=device)
        members: dict[Beginning, list[int]] = defaultdict(list)
        for place, beginning in enumerate(beginnings):
            if beginning:
                members[beginning].append(place)
        self.shared = [
            Shared(beginning, torch.tensor(places, device=device)) for beginning, places in members.items()
        ]
        return torch.arange(self._length, device=device) > self._slots_B[:, None]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Layer:
        """Called by each attention layer: store each row's new position, return the rows, [n, H, L, D]."""
        self._layer, rows = layer_idx, self._first + len(self._rows_B)
        found: list[Tensor] = []
        for held, new in zip(
            self._held.get(layer_idx, (None, None)), (key_states, value_states), strict=True
        ):
            storage = self._grown(held, new, rows, self._length)
            storage[self._rows_B, :, self._slots_B] = new[:, :, 0]
            found.append(storage)
        keys, values = found
        self._held[layer_idx] = keys, values
        return keys[self._first : rows, :, : self._length], values[self._first : rows, :, : self._length]

    def beginning(self, shared: Shared) -> Layer:
        """Its keys and values in the layer that was updated last, [1, H, length, D] each."""
        return shared.beginning.row.layer(self._layer, shared.beginning.length)

    def put(self, row: int, layers: dict[int, Layer]) -> None:
        """Copy positions of one text into a row's slots, from slot 0 on."""
        for index, new in layers.items():
            grown: list[Tensor] = []
            for held, part in zip(self._held.get(index, (None, None)), new, strict=True):
                storage = self._grown(held, part, row + 1, part.shape[2])
                storage[row, :, : part.shape[2]] = part[0]
                grown.append(storage)
            self._held[index] = grown[0], grown[1]

    def taken(self, row: int, start: int, end: int) -> dict[int, Layer]:
        """A row's slots [start, end), every layer."""
        return {
            index: (keys[row : row + 1, :, start:end], values[row : row + 1, :, start:end])
            for index, (keys, values) in self._held.items()
        }

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a row's first `length` slots over another row; 0 if it was never written."""
        for held in self._tensors() if length else ():
            held[target, :, :length] = held[source, :, :length]

    def wipe(self, row: int) -> None:
        """Forget what a failed forward left in a row: values that are not finite spoil even masked slots."""
        for held in self._tensors():
            held[row : row + 1] = 0

    def clear(self) -> None:
        """Free the storage."""
        self._held.clear()

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Slots before those that this forward adds. Called by transformers."""
        return self._length - 1

    @property
    def nbytes(self) -> int:
        """Bytes of storage held."""
        return sum(held.nbytes for held in self._tensors())

    def _tensors(self) -> list[Tensor]:
        return [held for pair in self._held.values() for held in pair]

    def _grown(self, held_BHLD: Tensor | None, like_BHQD: Tensor, rows: int, length: int) -> Tensor:
        """`held` if it has room for these rows and slots, else a larger copy of it."""
        if held_BHLD is None:
            return self.allocate(like_BHQD, rows, length)
        old_rows, old_length = held_BHLD.shape[0], held_BHLD.shape[2]
        if old_rows >= rows and old_length >= length:
            return held_BHLD
        grown = self.allocate(like_BHQD, max(rows, old_rows), max(length, old_length))
        grown[:old_rows, :, :old_length] = held_BHLD
        return grown

    def allocate(self, like_BHQD: Tensor, rows: int, length: int) -> Tensor:
        """Zeroed storage for this many rows and slots, both rounded up."""
        _, heads, _, width = like_BHQD.shape
        rows, length = _doubled(1, rows, self._slots), _doubled(SMALLEST_LENGTH, length, self._context_length)
        return like_BHQD.new_zeros(rows, heads, length, width)


def _doubled(start: int, needed: int, most: int) -> int:
    """`start` doubled until it holds `needed`, at most `most`."""
    size = start
    while size < needed:
        size *= 2
    return min(size, most)
