"""New weights in place of the old ones: the server reads a whole folder while requests wait at the door.

A response under way is cut and goes on with the new weights, which read all of it anew: no token attends to
keys and values of other weights than its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from afterwit.core.adapters import SHARED
from afterwit.core.errors import EngineError
from afterwit.engines.port import Weights
from afterwit.engines.server.door import Door
from afterwit.engines.server.server import Server
from afterwit.engines.server.swaps.lease import Lease, Leases, Loaded
from afterwit.engines.server.swaps.proof import Proof, proof_with
from afterwit.engines.server.swaps.tensors import check_same_tensors

WHO = "swap"
OURS = "afterwit-"


class WholeSwap:
    """Implements `port.Swap`. From `probe`, or else `promote`, until the swap is over the door is closed."""

    def __init__(
        self,
        server: Server,
        base: Path,
        door: Door,
        *,
        proof: Proof,
        dtype: str,
        lost: Callable[[Exception], None],
    ) -> None:
        """`base` is the model's folder, `proof` the base's own.

        `lost` is told when the server holds neither the live weights nor others: it then calls `recover`.
        """
        self._server, self._door, self._dtype, self._lost = server, door, dtype, lost
        self._base = self._live = Loaded(version=0, folder=base, name=None)
        self._on_server: Loaded | None = self._base
        self._staged: Loaded | None = None
        self._leases = Leases()
        self._proofs = {self._base: proof}
        self._one_at_a_time = asyncio.Lock()

    @property
    def version(self) -> int:
        return self._live.version

    @property
    def label(self) -> str | None:
        """None at first, when the server's label is its own, and while it takes weights."""
        at_first = self._on_server is self._base and self._live is self._base
        return None if self._on_server is None or at_first else _label(self._on_server)

    def live(self, adapter: str) -> int | None:
        return self.version if adapter == SHARED else None

    @contextmanager
    def lease(self, weights: Weights, adapter: str) -> Iterator[Lease]:
        if weights is Weights.BASE:
            raise EngineError(
                'the server has no base weights beside the live ones: set judge.weights = "live"'
            )
        with self._leases.of(self._live) as lease:
            yield lease

    async def stage(self, version: int, folder: Path, adapter: str) -> None:
        if adapter != SHARED:
            raise EngineError('this engine swaps whole weights: set engine.swap = "adapters"')
        await self.discard()
        if folder == self._base.folder and version == self._base.version:
            self._staged = self._base
            return
        await asyncio.to_thread(check_same_tensors, folder, self._base.folder)
        self._staged = Loaded(version=version, folder=folder, name=None)

    async def probe(self, ids: Sequence[int], times: float) -> list[float]:
        """Whole weights are taken as they are, whatever `times` says."""
        async with self._one_at_a_time:
            staged = self._staged_weights()
            await self._put(staged)
            scored = await self._server.score(ids, None)
            self._proofs[staged] = proof_with(None, ids, 1.0, scored)
            return scored

    async def promote(self) -> None:
        async with self._one_at_a_time:
            staged = self._staged_weights()
            await self._put(staged)
            self._live, self._staged = staged, None
            self._proofs = {each: self._proofs[each] for each in (self._base, staged) if each in self._proofs}
            self._door.open(WHO)

    async def discard(self) -> None:
        async with self._one_at_a_time:
            self._staged = None
            await self._put(self._live)
            self._door.open(WHO)

    async def unload(self, adapter: str) -> None:
        """There is none."""

    async def recover(self) -> None:
        """A server that was started anew has the base's weights: read the live ones again."""
        async with self._one_at_a_time:
            self._staged = None
            if self._live is not self._base or self._on_server is not self._base:
                self._on_server = None
                await self._put(self._live)
            if (proof := self._proofs.get(self._live)) is not None:
                ids = proof.ids
                await proof.check(lambda times: self._server.score(ids, None), self._dtype)
            self._door.open(WHO)

    async def close(self) -> None:
        self._leases.end()

    async def _put(self, loaded: Loaded) -> None:
        """Have the server read these weights; if they do not fit, the live ones again."""
        if self._on_server is loaded:
            return
        self._door.close(WHO, f"the server takes the weights of version {loaded.version}")
        self._leases.end()
        self._on_server = None
        try:
            await self._server.load_weights(loaded.folder, _label(loaded))
        except EngineError as error:
            if loaded is self._live:
                self._lost(error)
            else:
                await self._put(self._live)
                self._door.open(WHO)
            raise
        self._on_server = loaded

    def _staged_weights(self) -> Loaded:
        if self._staged is None:
            raise EngineError("No weights are staged.")
        return self._staged


def is_ours(label: str | None) -> bool:
    """Whether weights of ours are on a server, rather than those that it was started with."""
    return label is not None and label.startswith(OURS)


def _label(loaded: Loaded) -> str:
    return f"{OURS}{loaded.version}"
