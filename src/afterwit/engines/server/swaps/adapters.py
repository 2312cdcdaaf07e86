"""New weights as adapters beside each other: each version has a name of its own on the server.

A response ends with the adapter that it began with. An adapter that is live no more is unloaded once no
response uses it. The base stays as it is, and answers beside them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

from afterwit.core.adapters import SHARED
from afterwit.core.errors import EngineError
from afterwit.engines.port import Weights
from afterwit.engines.server.server import Server
from afterwit.engines.server.swaps.amplified import amplified
from afterwit.engines.server.swaps.lease import Lease, Leases, Loaded
from afterwit.engines.server.swaps.proof import Proof, proof_with

ADAPTER = "adapter_config.json"
log = logging.getLogger(__name__)


class AdapterSwap:
    """Implements `port.Swap`."""

    def __init__(self, server: Server, base: Path, *, proof: Proof, dtype: str) -> None:
        """`base` is the model's folder, `proof` the base's own."""
        self._server, self._dtype = server, dtype
        self._base = self._live = Loaded(version=0, folder=base, name=None)
        self._own: dict[str, Loaded] = {}
        """The live weights of adapters of somebody's own."""
        self._staged: Loaded | None = None
        self._leases = Leases()
        self._proofs = {self._base: proof}
        self._retired: set[Loaded] = set()
        self._unloading: set[asyncio.Task[None]] = set()

    @property
    def version(self) -> int:
        return self._live.version

    @property
    def label(self) -> None:
        return None

    def live(self, adapter: str) -> int | None:
        served = self._live if adapter == SHARED else self._own.get(adapter)
        return None if served is None else served.version

    @contextmanager
    def lease(self, weights: Weights, adapter: str) -> Iterator[Lease]:
        served = self._live if adapter == SHARED else self._own.get(adapter, self._base)
        try:
            with self._leases.of(self._base if weights is Weights.BASE else served) as lease:
                yield lease
        finally:
            self._unload_unused()

    async def stage(self, version: int, folder: Path, adapter: str) -> None:
        await self.discard()
        self._staged = await self._load(version, folder, adapter)

    async def probe(self, ids: Sequence[int], times: float) -> list[float]:
        staged = self._staged_weights()
        scored = await self._score(ids, staged, times)
        self._proofs[staged] = proof_with(self._proofs.get(staged), ids, times, scored)
        return scored

    async def _score(self, ids: Sequence[int], loaded: Loaded, times: float) -> list[float]:
        if loaded.name is None or times == 0.0:
            return await self._server.score(ids, None)
        if times == 1.0:
            return await self._server.score(ids, loaded.name)
        name = f"{loaded.name}-taken-{times:g}-times"
        with amplified(loaded.folder, name, times) as folder:
            await self._server.load_adapter(name, folder)
            try:
                return await self._server.score(ids, name)
            finally:
                await self._forget(name)

    async def promote(self) -> None:
        staged = self._staged_weights()
        self._staged = None
        if staged.adapter == SHARED:
            old, self._live = self._live, staged
            self._retire(old)
            return
        await self.unload(staged.adapter)
        self._own[staged.adapter] = staged

    async def unload(self, adapter: str) -> None:
        if (old := self._own.pop(adapter, None)) is not None:
            self._retire(old)

    async def discard(self) -> None:
        if (staged := self._staged) is not None:
            self._staged = None
            self._retire(staged)

    async def recover(self) -> None:
        """The names are gone: load the live adapters again. What was staged is staged no more."""
        self._retired.clear()
        self._staged = None
        live, own = self._live, list(self._own.values())
        again = [await self._again(loaded) for loaded in (live, *own)]
        self._live, *others = (loaded for loaded, _ in again)
        self._proofs = {self._base: self._proofs[self._base]}
        self._proofs |= {loaded: proof for loaded, proof in again if proof is not None}
        for loaded in others:
            if loaded.adapter in self._own:
                self._own[loaded.adapter] = loaded
            else:  # it was unloaded meanwhile
                self._retire(loaded)

    async def _again(self, lost: Loaded) -> tuple[Loaded, Proof | None]:
        proof, again = self._proofs.get(lost), await self._load(lost.version, lost.folder, lost.adapter)
        if proof is not None:
            await proof.check(partial(self._score, proof.ids, again), self._dtype)
        return again, proof

    async def close(self) -> None:
        self._leases.end()
        loaded = {self._live, *self._own.values(), *([self._staged] if self._staged else ()), *self._retired}
        await asyncio.gather(*self._unloading, *map(self._unload, loaded))

    async def _load(self, version: int, folder: Path, adapter: str) -> Loaded:
        if await asyncio.to_thread((folder / ADAPTER).is_file):
            name = f"afterwit-{version}-{uuid4().hex[:8]}"
            await self._server.load_adapter(name, folder)
            return Loaded(version=version, folder=folder, name=name, adapter=adapter)
        if folder == self._base.folder:
            return Loaded(version=version, folder=folder, name=None, adapter=adapter)
        raise EngineError(
            f"{folder} holds no adapter ({ADAPTER}), and this engine swaps adapters: set learner.lora_rank "
            'above zero, or engine.swap = "whole"'
        )

    def _staged_weights(self) -> Loaded:
        if self._staged is None:
            raise EngineError("No weights are staged.")
        return self._staged

    def _retire(self, loaded: Loaded) -> None:
        if loaded.name is not None:
            self._retired.add(loaded)
        self._unload_unused()

    def _unload_unused(self) -> None:
        for loaded in [each for each in self._retired if not self._leases.uses(each)]:
            self._retired.remove(loaded)
            self._proofs.pop(loaded, None)
            task = asyncio.create_task(self._unload(loaded))
            self._unloading.add(task)
            task.add_done_callback(self._unloading.discard)

    async def _unload(self, loaded: Loaded) -> None:
        if loaded.name is not None:
            await self._forget(loaded.name)

    async def _forget(self, name: str) -> None:
        """An adapter that stays loaded costs memory, and nothing else."""
        try:
            await self._server.unload_adapter(name)
        except EngineError as error:
            log.info("the adapter %s could not be unloaded: %s", name, error)
