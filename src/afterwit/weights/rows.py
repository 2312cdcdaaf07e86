"""Several adapters over one model at once: each row of a batch is computed with its own.

The adapters are unmerged (`lora.unmerged`); the weights exist once. Axes: B rows, N tokens, R the rank, I and
O a layer's inputs and outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from afterwit.weights.lora import Pair, fitting, twin


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """An adapter's factors by layer, on the model's device; B holds the scale."""

    pairs: Mapping[str, Pair]

    @property
    def device(self) -> torch.device:
        return next(iter(self.pairs.values())).a_RI.device

    def times(self, factor: float) -> Factors:
        """The adapter, scaled."""
        if factor == 1.0:
            return self
        return Factors({name: Pair(pair.a_RI, factor * pair.b_OR) for name, pair in self.pairs.items()})

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return sum(factor.nbytes for pair in self.pairs.values() for factor in pair)


class Group(NamedTuple):
    """The rows of a batch that one adapter computes; None: all of them."""

    factors: Factors
    rows_B: Tensor | None


class RowAdapters:
    """`module` has the weights of a model, which stays as it is. Within `rows` its layers add adapters.

    Each thread has its own rows, so that one may score while another decodes.
    """

    def __init__(self, model: Any) -> None:
        self.module: Any = twin(model, {})
        self._here = threading.local()
        for name, layer in self.module.named_modules():
            if isinstance(layer, nn.Linear | Conv1D):
                layer.register_forward_hook(self._adding(name))

    def fitted(self, pairs: Mapping[str, Pair], scale: float) -> Factors:
        """An adapter made ready. ValueError if it does not fit the model."""
        found = {}
        for name, (layer, pair) in fitting(self.module, pairs).items():
            a_RI, b_OR = (factor.to(layer.weight.device) for factor in pair)
            found[name] = Pair(a_RI, scale * b_OR)
        return Factors(found)

    @contextmanager
    def rows(self, adapters: Sequence[Factors | None]) -> Iterator[None]:
        """Within the body, row i of a batch is computed with adapters[i]; None: with the model alone."""
        self._here.groups, self._here.size = _groups(adapters), len(adapters)
        try:
            yield
        finally:
            self._here.groups = ()

    def _adding(self, name: str) -> Any:
        def hook(layer: nn.Module, inputs: tuple[Tensor, ...], out_NO: Tensor) -> Tensor:
            for factors, rows_B in getattr(self._here, "groups", ()):
                if (pair := factors.pairs.get(name)) is None:
                    continue
                if rows_B is None:
                    out_NO = _added(inputs[0], out_NO, pair)
                    continue
                if len(inputs[0]) != self._here.size:
                    raise ValueError(f"{name} was given {len(inputs[0])} rows of {self._here.size}")
                out_NO[rows_B] = _added(inputs[0][rows_B], out_NO[rows_B], pair)
            return out_NO

        return hook


def _added(in_NI: Tensor, out_NO: Tensor, pair: Pair) -> Tensor:
    """Product and sum are computed in the factors' precision."""
    narrow_NR = functional.linear(in_NI.to(pair.a_RI.dtype), pair.a_RI)
    return (out_NO + functional.linear(narrow_NR, pair.b_OR)).to(out_NO.dtype)


def _groups(adapters: Sequence[Factors | None]) -> tuple[Group, ...]:
    places: dict[Factors, list[int]] = {}
    for place, factors in enumerate(adapters):
        if factors is not None:
            places.setdefault(factors, []).append(place)
    return tuple(
        Group(factors, None if len(rows) == len(adapters) else torch.tensor(rows, device=factors.device))
        for factors, rows in places.items()
    )
