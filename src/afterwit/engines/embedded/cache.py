"""Keys and values: of one text, of a batch of responses, and those that are kept for further requests.

Axes: B rows, H key heads, L positions, D head width, Q new positions.
"""

from __future__ import annotations

import os
from array import array
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.text import prefix_length, size_in_words

SMALLEST_LENGTH = 256
WORTH = 16
"""Tokens that must match before anything is reused: reading so few costs one forward anyway."""
MOST_ROWS = 256
"""Rows in the prefix cache, so that searching it stays cheap."""
GIB = 2**30
SHARE = 8
"""The device's memory is divided by this if `prefix_cache_gib` is unset. The engine's weights, those that it
stages, and the learner need the rest."""
CONTAINER = Path("/sys/fs/cgroup/memory.max")
"""The memory limit of a container on Linux: a number, or the word `max`."""

Layer = tuple[Tensor, Tensor]
"""Keys and values of one layer, [B, H, L, D] each."""


class Storage(Cache):  # type: ignore[misc]  # transformers is untyped to the checker
    """Keys and values of each layer, [rows, H, length, D], which grow when a forward first needs more.

    Layers grow one at a time, so the peak is one layer above the sum.
    """

    def __init__(self, *, context_length: int) -> None:
        super().__init__(layers=[])
        self._context_length = context_length
        self._held: dict[int, Layer] = {}

    @property
    def nbytes(self) -> int:
        return sum(keys.nbytes + values.nbytes for keys, values in self._held.values())

    def layers_between(self, start: int, end: int, *, row: int = 0) -> dict[int, Layer]:
        """Every layer's positions [start, end) of a row."""
        part = (slice(row, row + 1), slice(None), slice(start, end))
        return {index: (keys[part], values[part]) for index, (keys, values) in self._held.items()}

    def _grown(self, index: int, like: Layer, rows: int, length: int) -> Layer:
        """A layer's storage, with at least these rows and positions."""
        held = self._held.get(index)
        old_rows, _, old_length, _ = (0, 0, 0, 0) if held is None else held[0].shape
        if held is not None and old_rows >= rows and old_length >= length:
            return held
        keys, values = (self.allocate(each, max(rows, old_rows), max(length, old_length)) for each in like)
        if held is not None:
            keys[:old_rows, :, :old_length], values[:old_rows, :, :old_length] = held
        self._held[index] = keys, values
        return keys, values

    def allocate(self, like_BHQD: Tensor, rows: int, length: int) -> Tensor:
        """Storage for this many rows and positions, or more."""
        raise NotImplementedError


class Row(Storage):
    """The `past_key_values` of a transformers model that reads one text, in pieces.

    `ids` are the tokens whose keys and values are here. A failed forward adds none, and may be repeated.
    """

    def __init__(self, *, context_length: int, coming: int = 0) -> None:
        """Storage is allocated for `coming` positions at once."""
        super().__init__(context_length=context_length)
        self.ids = array("i")
        self.coming = coming
        self.users = 0
        """Running requests that use it."""
        self._end = 0

    @property
    def bytes_per_position(self) -> float:
        """Bytes of storage per position; 0 before the first forward."""
        return sum((keys.nbytes + values.nbytes) / keys.shape[2] for keys, values in self._held.values())

    def aim(self, tokens: int) -> None:
        """The next forward reads this many further tokens."""
        self._end = len(self.ids) + tokens

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Layer:
        """Called by each attention layer: stores the new positions, returns all so far, [1, H, L, D]."""
        self._write(layer_idx, (key_states, value_states), len(self.ids), self._end)
        return self.layer(layer_idx, self._end)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Called by transformers: positions before those that this forward adds."""
        return len(self.ids)

    def layer(self, index: int, length: int) -> Layer:
        """A layer's first `length` positions."""
        keys, values = self._held[index]
        return keys[:, :, :length], values[:, :, :length]

    def extend(self, layers: dict[int, Layer], ids: Sequence[int]) -> None:
        """Append tokens whose keys and values were computed elsewhere."""
        start, end = len(self.ids), len(self.ids) + len(ids)
        for index, new in layers.items():
            self._write(index, new, start, end)
        self.ids.extend(ids)

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens only. The storage stays allocated."""
        del self.ids[length:]

    def first(self, length: int, *, coming: int) -> Row:
        """A copy of the first `length` tokens, with storage for `coming` positions."""
        row = Row(context_length=self._context_length, coming=coming)
        row.extend(self.layers_between(0, length), self.ids[:length])
        return row

    def _write(self, index: int, new: Layer, start: int, end: int) -> None:
        keys, values = self._grown(index, new, 1, end)
        keys[:, :, start:end], values[:, :, start:end] = new

    def allocate(self, like_BHQD: Tensor, rows: int, length: int) -> Tensor:
        """An eighth more than is needed or coming, so that growing texts are seldom copied."""
        _, heads, _, width = like_BHQD.shape
        length = max(length, self.coming)
        length = min(length + length // 8 + 64, self._context_length)
        return like_BHQD.new_empty(rows, heads, length, width)


class Beginning(NamedTuple):
    """The first `length` positions of a row, which a response attends to in place."""

    row: Row
    length: int


class Batch(Storage):
    """The `past_key_values` of a transformers model that decodes, one position of each response.

    Positions of a row are its slots; both grow by doubling. `aim` describes the next forward. Writing is
    idempotent: a failed forward may be repeated.
    """

    def __init__(self, *, slots: int, context_length: int) -> None:
        super().__init__(context_length=context_length)
        self._slots = slots
        self._first = self._length = 0
        self._rows_B = self._slots_B = torch.empty(0)
        self.layer = 0
        """The layer that was updated last."""
        self.shared: list[tuple[Beginning, Tensor]] = []
        """Beginnings that this forward attends to besides the rows' own slots, with the rows of each."""

    def aim(
        self,
        first: int,
        positions: Sequence[int],
        beginnings: Sequence[Beginning | None],
        device: torch.device,
    ) -> Tensor:
        """The next forward extends row first + i at positions[i]. Returns the slots that it hides, [B, L]."""
        slots, members = list(positions), defaultdict[Beginning, list[int]](list)
        for place, beginning in enumerate(beginnings):
            if beginning is not None:
                slots[place] -= beginning.length
                members[beginning].append(place)
        self._first, self._length = first, max(slots) + 1
        self._slots_B = torch.tensor(slots, device=device)
        self._rows_B = torch.arange(first, first + len(slots), device=device)
        self.shared = [(each, torch.tensor(places, device=device)) for each, places in members.items()]
        return torch.arange(self._length, device=device) > self._slots_B[:, None]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Layer:
        """Called by each attention layer: stores each row's new position, returns the rows, [B, H, L, D]."""
        self.layer, end = layer_idx, self._first + len(self._rows_B)
        keys, values = self._grown(layer_idx, (key_states, value_states), end, self._length)
        keys[self._rows_B, :, self._slots_B] = key_states[:, :, 0]
        values[self._rows_B, :, self._slots_B] = value_states[:, :, 0]
        return keys[self._first : end, :, : self._length], values[self._first : end, :, : self._length]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Called by transformers: slots before those that this forward adds."""
        return self._length - 1

    def put(self, row: int, layers: dict[int, Layer]) -> None:
        """Copy positions of one text into a row's slots, from slot 0 on."""
        for index, new in layers.items():
            length = new[0].shape[2]
            for held, part in zip(self._grown(index, new, row + 1, length), new, strict=True):
                held[row, :, :length] = part[0]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a row's first `length` slots over another row. 0: it was never written."""
        for held in chain.from_iterable(self._held.values()) if length else ():
            held[target, :, :length] = held[source, :, :length]

    def wipe(self, row: int) -> None:
        """Zero a row after a failed forward: non-finite values spoil even masked slots."""
        for held in chain.from_iterable(self._held.values()):
            held[row : row + 1] = 0

    def clear(self) -> None:
        self._held.clear()

    def allocate(self, like_BHQD: Tensor, rows: int, length: int) -> Tensor:
        """Zeroed storage for this many rows and slots, both rounded up by doubling."""

        def doubled(size: int, needed: int, most: int) -> int:
            while size < needed:
                size *= 2
            return min(size, most)

        _, heads, _, width = like_BHQD.shape
        rows, length = doubled(1, rows, self._slots), doubled(SMALLEST_LENGTH, length, self._context_length)
        return like_BHQD.new_zeros(rows, heads, length, width)


class PrefixCache:
    """Rows that further requests may reuse, by owner: one owner per set of weights. All share one budget.

    A row holds keys and values of its owner's present weights only. Rows of running requests are never
    dropped; if they alone exceed the budget, nothing else is kept.
    """

    def __init__(self, budget: int) -> None:
        """`budget` is in bytes; with 0 no row is ever found."""
        self._budget = budget
        self._owners: dict[Row, object] = {}
        """Least recently used first."""

    def __contains__(self, row: object) -> bool:
        return row in self._owners

    @property
    def nbytes(self) -> int:
        return sum(row.nbytes for row in self._owners)

    def find(self, owner: object, ids: array[int]) -> tuple[Row, int] | None:
        """The row with the longest common prefix, the youngest of several, and how many first ids it holds.

        None if no row is worth it.
        """
        found = [
            (row, prefix_length(row.ids, ids))
            for row, other in reversed(self._owners.items())
            if other is owner
        ]
        best = max(found, key=lambda each: each[1], default=None)
        return best if best is not None and best[1] >= WORTH else None

    def add(self, owner: object, row: Row) -> None:
        if self._budget:
            self._owners[row] = owner

    def use(self, row: Row) -> None:
        """A request begins to use the row, which becomes the youngest."""
        row.users += 1
        if row in self._owners:
            self._owners[row] = self._owners.pop(row)

    def leave(self, row: Row) -> None:
        """A request that used the row has ended. The row becomes the youngest."""
        row.users -= 1
        if row in self._owners:
            self._owners[row] = self._owners.pop(row)
        self.make_room()

    def drop(self, row: Row) -> None:
        self._owners.pop(row, None)

    def forget(self, owner: object) -> None:
        """Never find a row of this owner again: its weights have changed."""
        self._owners = {row: other for row, other in self._owners.items() if other is not owner}

    def has_room(self, tokens: int) -> bool:
        """Whether a row of this many tokens fits if all unused ones are dropped."""
        in_use = sum(row.nbytes for row in self._owners if row.users)
        return in_use + self._bytes(tokens) <= self._budget

    def make_room(self, tokens: int = 0, *, keep: Row | None = None) -> None:
        """Drop the oldest unused rows until one of this many tokens fits. `keep` stays, now the youngest."""
        if keep is not None and keep in self._owners:
            self._owners[keep] = self._owners.pop(keep)
        total, rows = self.nbytes + self._bytes(tokens), len(self._owners)
        for row in [row for row in self._owners if not row.users and row is not keep]:
            if total <= self._budget and rows <= MOST_ROWS:
                return
            total, rows = total - row.nbytes, rows - 1
            del self._owners[row]

    def _bytes(self, tokens: int) -> float:
        return tokens * max((row.bytes_per_position for row in self._owners), default=0.0)


def budget_of(settings: EmbeddedSettings, device: torch.device, *, container: Path = CONTAINER) -> int:
    """Bytes of the prefix cache: the setting, or a share of the device's memory.

    Apple's GPUs use the machine's own memory, which is that of its container if that is less.
    """
    if settings.prefix_cache_gib is not None:
        return int(settings.prefix_cache_gib * GIB)
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory) // SHARE
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = container.read_text().strip() if container.is_file() else "max"
    return (min(machine, int(limit)) if limit.isdigit() else machine) // SHARE


def in_words(budget: int, token: int, context_length: int) -> str:
    """The budget and the size of the longest text, of a model whose tokens take `token` bytes each."""
    holds = size_in_words(budget) + (f", {budget // token:,} tokens" if budget else ": nothing is reused")
    whole = size_in_words(token * context_length)
    return f"keys and values are kept in {holds}; a context of {context_length:,} tokens takes {whole}"
