"""Keys and values of one text, which is read from its beginning on.

Axes: H key heads, L positions, D head width, Q new positions.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache

from afterwit.engines.embedded.cache.common import common_prefix

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
