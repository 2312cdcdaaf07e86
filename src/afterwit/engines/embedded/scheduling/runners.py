"""The model runners of an engine, and which of them a request goes to."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torch import nn

from afterwit.core.adapters import SHARED
from afterwit.engines.embedded.cache.kept import KeptRows
from afterwit.engines.embedded.scheduling.decoding import IN_PLACE
from afterwit.engines.embedded.scheduling.pace import Pace
from afterwit.engines.embedded.scheduling.runner import ModelRunner
from afterwit.engines.embedded.staging import Staged
from afterwit.engines.port import Generate, Weights
from afterwit.weights.rows import RowAdapters


class Runners:
    """One for the live weights, one for the base's, one for adapters of somebody's own beside the base's.

    They share the memory for keys and values of earlier requests. A quarter of the live one's slots is kept
    for requests that somebody waits for.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        slots: int,
        context_length: int,
        pace: Pace,
        kept_bytes: int,
        in_place: int | None = IN_PLACE,
    ) -> None:
        """`module` has the base's weights, `kept_bytes` is for earlier requests; else as in `ModelRunner`."""
        self.rows = RowAdapters(module)
        runner = partial(
            ModelRunner,
            version=0,
            slots=slots,
            context_length=context_length,
            pace=pace,
            kept=KeptRows(kept_bytes),
            in_place=in_place,
        )
        self._whole = {
            Weights.LIVE: runner(module, reserve=slots // 4),
            Weights.BASE: runner(module, reserve=0),
        }
        self._own = runner(self.rows.module, reserve=0, rows=self.rows.rows)

    def __iter__(self) -> Iterator[ModelRunner]:
        yield from (*self._whole.values(), self._own)

    def of(self, request: Generate) -> ModelRunner:
        own = request.weights is Weights.LIVE and request.adapter != SHARED
        return self._own if own else self._whole[request.weights]

    def whole(self, weights: Weights) -> ModelRunner:
        """The runner of weights that all share."""
        return self._whole[weights]

    def live(self, adapter: str) -> int | None:
        """The version that answers an adapter's requests; None: it has none."""
        return self._whole[Weights.LIVE].version if adapter == SHARED else self._own.live(adapter)

    def promote(self, staged: Staged) -> None:
        """In the worker's thread, between two decode steps."""
        if staged.adapter == SHARED:
            self._whole[Weights.LIVE].swap(staged.module, staged.version)
        else:
            self._own.put(staged.adapter, staged.factors, staged.version)

    def unload(self, adapter: str) -> None:
        """In the worker's thread: have an adapter of somebody's own no more."""
        self._own.take(adapter)
