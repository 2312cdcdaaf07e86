"""Keys and values of one text, which is read from its beginning on.

Axes: H key heads, L positions, D head width, Q new positions.
"""

from __future__ import annotations

import os
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.model_shape import kept_per_token

Layer = tuple[Tensor, Tensor]
"""Keys and values of one layer, [1, H, L, D] each."""


class Row(Cache):  # type: ignore[misc]  # transformers is untyped to the checker
    """What a transformers model is given as `past_key_values` while it reads a text, in pieces.

    `ids` are the tokens whose keys and values are here. A forward that failed adds none, and may be repeated.
    """

    def __init__(self, *, context_length: int, coming: int = 0) -> None:
        """Storage is made for `coming` positions at once: as many as the text has."""
        super().__init__(layers=[])
        self.ids = array("i")
        self.coming = coming
        """Positions to make storage for at least."""
        self.users = 0
        """Requests that run over it."""
        self._context_length = context_length
        self._held: dict[int, Layer] = {}
        self._end = 0

    @property
    def nbytes(self) -> int:
        """Bytes of storage held."""
        return sum(keys.nbytes + values.nbytes for keys, values in self._held.values())

    @property
    def bytes_per_position(self) -> float:
        """Bytes of storage per position; 0 before the first forward."""
        return sum((keys.nbytes + values.nbytes) / keys.shape[2] for keys, values in self._held.values())

    def holds(self, ids: array[int]) -> int:
        """How many of these tokens, from the first on, are here."""
        return common_prefix(self.ids, ids)

    def aim(self, tokens: int) -> None:
        """The next forward reads this many tokens on."""
        self._end = len(self.ids) + tokens

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Layer:
        """Called by each attention layer: store the new positions, return all so far, [1, H, L, D]."""
        return self._write(layer_idx, (key_states, value_states), len(self.ids), self._end)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions before those that this forward adds. Called by transformers."""
        return len(self.ids)

    def layer(self, index: int, length: int) -> Layer:
        """A layer's first `length` positions."""
        keys, values = self._held[index]
        return keys[:, :, :length], values[:, :, :length]

    def layers_between(self, start: int, end: int) -> dict[int, Layer]:
        """Every layer's positions [start, end)."""
        return {
            index: (keys[:, :, start:end], values[:, :, start:end])
            for index, (keys, values) in self._held.items()
        }

    def extend(self, layers: dict[int, Layer], ids: Sequence[int]) -> None:
        """Append tokens whose keys and values were computed elsewhere."""
        start, end = len(self.ids), len(self.ids) + len(ids)
        for index, new in layers.items():
            self._write(index, new, start, end)
        self.ids.extend(ids)

    def cut(self, length: int) -> None:
        """Keep the first `length` tokens only; the storage stays for what comes."""
        del self.ids[length:]

    def first(self, length: int, *, coming: int) -> Row:
        """A copy of the first `length` tokens with room for `coming` positions."""
        row = Row(context_length=self._context_length, coming=coming)
        row.extend(self.layers_between(0, length), self.ids[:length])
        return row

    def _write(self, index: int, new: Layer, start: int, end: int) -> Layer:
        grown: list[Tensor] = []
        for held, added in zip(self._held.get(index, (None, None)), new, strict=True):
            storage = self._roomy(held, added, start, end)
            storage[:, :, start:end] = added
            grown.append(storage)
        keys, values = grown
        self._held[index] = keys, values
        return keys[:, :, :end], values[:, :, :end]

    def _roomy(self, held: Tensor | None, like: Tensor, kept: int, end: int) -> Tensor:
        """`held` if it has `end` positions, else a larger one with its first `kept`."""
        if held is not None and held.shape[2] >= end:
            return held
        grown = self.allocate(like, max(end, self.coming))
        if held is not None:
            grown[:, :, :kept] = held[:, :, :kept]
        return grown

    def allocate(self, like_1HQD: Tensor, length: int) -> Tensor:
        """Storage for this many positions and an eighth more, so that texts that grow are seldom copied."""
        _, heads, _, width = like_1HQD.shape
        length = min(length + length // 8 + 64, self._context_length)
        return like_1HQD.new_empty(1, heads, length, width)


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


WORTH = 16
"""Tokens that must be the same before anything is reused: reading so few costs one forward anyway."""

MOST = 256
"""Rows kept at most, so that looking through them stays cheap."""


class Found(NamedTuple):
    """A row, and how many tokens of a text's beginning it holds."""

    row: Row
    tokens: int


class KeptRows:
    """Rows by owner: one per set of weights. All owners share one budget of bytes.

    A row here holds keys and values of its owner's present weights only. Rows that requests run over are
    never dropped; if they alone are more than the budget, nothing else is kept.
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
        """Bytes of storage of all rows."""
        return sum(row.nbytes for row in self._owners)

    def holding(self, owner: object, ids: array[int]) -> Found | None:
        """The row that holds most of a text's beginning; None if none holds enough to be worth it.

        Of rows that hold as much, the youngest.
        """
        rows = [row for row, other in reversed(self._owners.items()) if other is owner]
        found = max((Found(row, row.holds(ids)) for row in rows), key=lambda one: one.tokens, default=None)
        return found if found is not None and found.tokens >= WORTH else None

    def add(self, owner: object, row: Row) -> None:
        """Enter a row that a request begins to read."""
        if self._budget:
            self._owners[row] = owner

    def use(self, row: Row) -> None:
        """A request runs over the row from now on: it is the youngest."""
        row.users += 1
        if row in self._owners:
            self._owners[row] = self._owners.pop(row)

    def leave(self, row: Row) -> None:
        """A request that ran over the row has ended. The row is the youngest again."""
        row.users -= 1
        if row in self._owners:
            self._owners[row] = self._owners.pop(row)
        self.make_room()

    def drop(self, row: Row) -> None:
        """Find the row no more."""
        self._owners.pop(row, None)

    def forget(self, owner: object) -> None:
        """Find no row of this owner any more: its weights have changed."""
        self._owners = {row: other for row, other in self._owners.items() if other is not owner}

    def has_room(self, tokens: int) -> bool:
        """Whether a row of this number of tokens can be added, if older ones are dropped."""
        in_use = sum(row.nbytes for row in self._owners if row.users)
        return in_use + self._bytes(tokens) <= self._budget

    def make_room(self, tokens: int = 0) -> None:
        """Drop the oldest rows that nobody uses until one of this number of tokens fits."""
        total, rows = self.nbytes + self._bytes(tokens), len(self._owners)
        for row in [row for row in self._owners if not row.users]:
            if total <= self._budget and rows <= MOST:
                return
            total, rows = total - row.nbytes, rows - 1
            del self._owners[row]

    def _bytes(self, tokens: int) -> float:
        """Storage of a row of this number of tokens; 0 before any row was read."""
        return tokens * max((row.bytes_per_position for row in self._owners), default=0.0)


def common_prefix(one: array[int], other: array[int]) -> int:
    """How many ids both begin with."""
    same, differ = 0, min(len(one), len(other))
    if one[:differ] == other[:differ]:
        return differ
    while differ - same > 1:
        middle = (same + differ) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            differ = middle
    return same


GIB = 2**30
SHARE = 8
"""`keep_gib` unset: the device's memory is divided by this. The engine's weights, those that it stages,
and the learner need the rest."""

CONTAINER = Path("/sys/fs/cgroup/memory.max")
"""The limit of a container on Linux; a number, or the word `max`."""


def budget_of(settings: EmbeddedSettings, device: torch.device) -> int:
    """Bytes for keys and values that are kept."""
    if settings.keep_gib is not None:
        return int(settings.keep_gib * GIB)
    return memory_of(device) // SHARE


def memory_of(device: torch.device) -> int:
    """Bytes of the device's memory; on Apple's GPUs it is the machine's own."""
    if device.type == "cuda":
        total: int = torch.cuda.get_device_properties(device).total_memory
        return total
    return machine_memory(CONTAINER)


def machine_memory(container: Path) -> int:
    """Bytes of the machine's memory, or of its container's if that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = container.read_text().strip() if container.is_file() else "max"
    return min(machine, int(limit)) if limit.isdigit() else machine


def in_words(budget: int, token: int, context_length: int) -> str:
    """The budget, and what the longest text takes, of a model whose tokens take `token` bytes each."""
    holds = f"{budget / GIB:.1f} GiB" + (f", {budget // token:,} tokens" if budget else ": nothing is reused")
    whole = token * context_length / GIB
    return (
        f"keys and values are kept in {holds}; a context of {context_length:,} tokens takes {whole:.1f} GiB"
    )


def bytes_per_token(config: Mapping[str, Any], dtype: torch.dtype) -> int:
    """Bytes of the keys and values of one token; `config` is the text model's."""
    return kept_per_token(config) * dtype.itemsize
