"""Weights beside those that serve: loaded, probed, then taken over by the engine or dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from torch import nn

from afterwit.core.adapters import SHARED
from afterwit.core.errors import EngineError
from afterwit.engines.embedded.forward import score
from afterwit.weights.lora import adds, beside, lora_of, pairs_of, taken
from afterwit.weights.rows import Factors, RowAdapters

Loader = Callable[[Path], nn.Module]
OwnLoader = Callable[[Path, RowAdapters], Factors | None]


class Staged(NamedTuple):
    """Weights that serve nobody yet: a module, or one that all share with factors of its own."""

    adapter: str
    version: int
    module: nn.Module
    folder: Path
    factors: Factors | None = None


class Staging:
    """What is loaded runs in other threads; decoding goes on meanwhile."""

    def __init__(
        self, base: nn.Module, rows: RowAdapters, *, load: Loader, own: OwnLoader | None = None
    ) -> None:
        """`load` reads a version's folder, `own` that of somebody's own adapter; None: there can be none."""
        self._base, self._rows, self._load, self._load_own = base, rows, load, own
        self._staged: Staged | None = None

    @property
    def takes_own(self) -> bool:
        """Whether somebody can have an adapter of their own."""
        return self._load_own is not None

    @property
    def staged(self) -> Staged:
        """EngineError if nothing is."""
        if self._staged is None:
            raise EngineError("No weights are staged.")
        return self._staged

    async def stage(self, version: int, folder: Path, adapter: str) -> None:
        """In place of what was staged. EngineError if the folder's weights do not fit."""
        self.discard()
        if adapter != SHARED:
            if self._load_own is None:
                raise EngineError("This engine has no adapters of somebody's own.")
            factors = await asyncio.to_thread(self._load_own, folder, self._rows)
            self._staged = Staged(adapter, version, self._rows.module, folder, factors)
            return
        module = await asyncio.to_thread(self._load, folder)
        _check_shapes(module, self._base, folder)
        self._staged = Staged(adapter, version, module, folder)

    async def probe(self, ids: Sequence[int], times: float) -> list[float]:
        """Log-probs of ids[1:] under the staged weights, their adapter taken `times` times."""
        staged = self.staged
        try:
            return await asyncio.to_thread(self._probed, staged, tuple(ids), times)
        except Exception as error:  # a model is foreign code and may raise anything
            raise EngineError(f"The staged weights cannot be probed: {error}") from error

    def discard(self) -> None:
        self._staged = None

    def _probed(self, staged: Staged, ids: Sequence[int], times: float) -> list[float]:
        if times == 0.0 and (staged.factors is not None or lora_of(staged.folder) is not None):
            return score(self._base, ids)
        factors = None if staged.factors is None else staged.factors.times(times)
        with self._rows.rows([factors]), taken(self._takeable(staged, times), times) as module:
            return score(module, ids)

    def _takeable(self, staged: Staged, times: float) -> nn.Module:
        """A merged adapter is beside the weights for a probe: there it can be taken several times."""
        merged = times != 1.0 and staged.adapter == SHARED and not adds(staged.module)
        if not merged or (lora := lora_of(staged.folder)) is None:
            return staged.module
        return beside(self._base, pairs_of(staged.folder), lora.scale)


def _check_shapes(module: nn.Module, base: nn.Module, folder: Path) -> None:
    """EngineError unless both have the same weights by name and shape."""
    theirs, ours = (
        {name: tuple(weight.shape) for name, weight in m.named_parameters()} for m in (module, base)
    )
    if theirs != ours:
        different = sorted(name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name))
        raise EngineError(f"The weights in {folder} do not fit the served model: {different[:3]} differ.")
