"""New weights on a server: as adapters next to each other, or as whole weights in place of the old ones.

Each version is loaded before a request names it. `AdapterSwap` and `WholeSwap` have the same methods:
`stage`, `probe`, `promote`, `discard`, `unload` and `live` are the port's; `recover` brings the live weights
back to a server that was away, and checks that it serves them; `close` ends all leases and leaves nothing of
ours there.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from afterwit.adapters import SHARED
from afterwit.agreement import gap, most, share
from afterwit.engines.model_files import shapes_of
from afterwit.engines.port import Weights
from afterwit.engines.server.server import CUT, Server, StreamChunk
from afterwit.errors import EngineError, EngineUnavailable

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
OURS = "afterwit-"
"""Labels of our weights on a server begin with this."""
SWAP = "swap"
"""The swap's name at the gate."""
BROKEN_OFF = "the server broke off a response"
PROOF_IDS = 24

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Weights on the server."""

    version: int
    folder: Path
    name: str | None
    """The adapter's name on the server; None: the model without one."""
    adapter: str = SHARED


class Swap:
    """The common part of both ways."""

    def __init__(self, server: Server, base: Path, *, proof: Proof, dtype: str) -> None:
        """`base` is the model's folder, `proof` the base's own."""
        self._server, self._dtype = server, dtype
        self._base = self._live = Loaded(version=0, folder=base, name=None)
        self._staged: Loaded | None = None
        self._leases: set[Lease] = set()
        """Of all running responses."""
        self._proofs = {self._base: proof}

    @property
    def version(self) -> int:
        return self._live.version

    @contextmanager
    def _leased(self, loaded: Loaded) -> Iterator[Lease]:
        lease = Lease(loaded)
        self._leases.add(lease)
        try:
            yield lease
        finally:
            self._leases.remove(lease)

    def _end_leases(self) -> None:
        for lease in self._leases:
            lease.end()

    def _require_staged(self) -> Loaded:
        if self._staged is None:
            raise EngineError("No weights are staged.")
        return self._staged


class AdapterSwap(Swap):
    """Each version is an adapter under a name of its own.

    A response ends with the adapter that it began with. An adapter that is no longer live is unloaded once no
    response uses it. The base stays, and answers next to the adapters.
    """

    label: None = None
    """The label that the server must report for its weights; None: any."""

    def __init__(self, server: Server, base: Path, *, proof: Proof, dtype: str) -> None:
        super().__init__(server, base, proof=proof, dtype=dtype)
        self._own: dict[str, Loaded] = {}
        """Live weights of personal adapters."""
        self._retired: set[Loaded] = set()
        self._unloading: set[asyncio.Task[None]] = set()

    def live(self, adapter: str) -> int | None:
        served = self._live if adapter == SHARED else self._own.get(adapter)
        return None if served is None else served.version

    @contextmanager
    def lease(self, weights: Weights, adapter: str) -> Iterator[Lease]:
        """The weights that a response beginning now uses."""
        served = self._live if adapter == SHARED else self._own.get(adapter, self._base)
        try:
            with self._leased(self._base if weights is Weights.BASE else served) as lease:
                yield lease
        finally:
            self._unload_unused()

    async def stage(self, version: int, folder: Path, adapter: str) -> None:
        await self.discard()
        self._staged = await self._load(version, folder, adapter)

    async def probe(self, ids: Sequence[int], times: float) -> list[float]:
        staged = self._require_staged()
        scored = await self._score(ids, staged, times)
        self._proofs[staged] = proof_with(self._proofs.get(staged), ids, times, scored)
        return scored

    async def promote(self) -> None:
        staged, self._staged = self._require_staged(), None
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
        staged, self._staged = self._staged, None
        if staged is not None:
            self._retire(staged)

    async def recover(self) -> None:
        """Load the live adapters again into a restarted server, which has lost them and the staged one."""
        self._retired.clear()
        self._staged = None
        again = [await self._load_again(loaded) for loaded in (self._live, *self._own.values())]
        self._live, *others = (loaded for loaded, _ in again)
        self._proofs = {self._base: self._proofs[self._base]}
        self._proofs |= {loaded: proof for loaded, proof in again if proof is not None}
        for loaded in others:
            if loaded.adapter in self._own:
                self._own[loaded.adapter] = loaded
            else:  # it was unloaded meanwhile
                self._retire(loaded)

    async def close(self) -> None:
        self._end_leases()
        loaded = {self._live, *self._own.values(), *([self._staged] if self._staged else ()), *self._retired}
        await asyncio.gather(*self._unloading, *map(self._unload, loaded))

    async def _load(self, version: int, folder: Path, adapter: str) -> Loaded:
        if await asyncio.to_thread((folder / CONFIG).is_file):
            name = f"{OURS}{version}-{uuid4().hex[:8]}"
            await self._server.load_adapter(name, folder)
            return Loaded(version=version, folder=folder, name=name, adapter=adapter)
        if folder == self._base.folder:
            return Loaded(version=version, folder=folder, name=None, adapter=adapter)
        raise EngineError(
            f"{folder} holds no adapter ({CONFIG}), and this engine swaps adapters: set learner.lora_rank "
            'above zero, or engine.swap = "whole"'
        )

    async def _load_again(self, lost: Loaded) -> tuple[Loaded, Proof | None]:
        proof, again = self._proofs.get(lost), await self._load(lost.version, lost.folder, lost.adapter)
        if proof is not None:
            await proof.check(partial(self._score, proof.ids, again), self._dtype)
        return again, proof

    async def _score(self, ids: Sequence[int], loaded: Loaded, times: float) -> list[float]:
        """Log-probs with the adapter scaled by `times`."""
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

    def _retire(self, loaded: Loaded) -> None:
        if loaded.name is not None:
            self._retired.add(loaded)
        self._unload_unused()

    def _unload_unused(self) -> None:
        for loaded in self._retired - {lease.of for lease in self._leases}:
            self._retired.remove(loaded)
            self._proofs.pop(loaded, None)
            task = asyncio.create_task(self._unload(loaded))
            self._unloading.add(task)
            task.add_done_callback(self._unloading.discard)

    async def _unload(self, loaded: Loaded) -> None:
        if loaded.name is not None:
            await self._forget(loaded.name)

    async def _forget(self, name: str) -> None:
        """An adapter that stays loaded only costs memory."""
        try:
            await self._server.unload_adapter(name)
        except EngineError as error:
            log.info("the adapter %s could not be unloaded: %s", name, error)


class WholeSwap(Swap):
    """The server has one set of weights. From `probe`, or else `promote`, to the end of the swap the gate is
    closed, and running responses are cut."""

    def __init__(
        self,
        server: Server,
        base: Path,
        gate: RequestGate,
        *,
        proof: Proof,
        dtype: str,
        lost: Callable[[Exception], None],
    ) -> None:
        """`lost` is called if the server has neither the live weights nor others; it then calls `recover`."""
        super().__init__(server, base, proof=proof, dtype=dtype)
        self._gate, self._lost = gate, lost
        self._on_server: Loaded | None = self._base
        self._one_at_a_time = asyncio.Lock()

    @property
    def label(self) -> str | None:
        """The label that the server must report; None at first, when the label is the server's own, and while
        it loads weights."""
        at_first = self._on_server is self._base and self._live is self._base
        return None if self._on_server is None or at_first else _label(self._on_server)

    def live(self, adapter: str) -> int | None:
        return self.version if adapter == SHARED else None

    @contextmanager
    def lease(self, weights: Weights, adapter: str) -> Iterator[Lease]:
        """The weights of a response that begins now. EngineError for the base."""
        if weights is Weights.BASE:
            raise EngineError(
                'the server has no base weights next to the live ones: set judge.weights = "live"'
            )
        with self._leased(self._live) as lease:
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
        """Whole weights are not scaled by `times`."""
        async with self._one_at_a_time:
            staged = self._require_staged()
            await self._put(staged)
            scored = await self._server.score(ids, None)
            self._proofs[staged] = proof_with(None, ids, 1.0, scored)
            return scored

    async def promote(self) -> None:
        async with self._one_at_a_time:
            staged = self._require_staged()
            await self._put(staged)
            self._live, self._staged = staged, None
            self._proofs = {each: self._proofs[each] for each in (self._base, staged) if each in self._proofs}
            self._gate.open(SWAP)

    async def discard(self) -> None:
        async with self._one_at_a_time:
            self._staged = None
            await self._put(self._live)
            self._gate.open(SWAP)

    async def unload(self, adapter: str) -> None:
        """There are no personal adapters."""

    async def recover(self) -> None:
        """A restarted server has the base's weights: load the live ones again."""
        async with self._one_at_a_time:
            self._staged = None
            if self._live is not self._base or self._on_server is not self._base:
                self._on_server = None
                await self._put(self._live)
            if (proof := self._proofs.get(self._live)) is not None:
                await proof.check(lambda times: self._server.score(proof.ids, None), self._dtype)
            self._gate.open(SWAP)

    async def close(self) -> None:
        self._end_leases()

    async def _put(self, loaded: Loaded) -> None:
        """Have the server load these weights; if they do not fit, the live ones again."""
        if self._on_server is loaded:
            return
        self._gate.close(SWAP, f"the server takes the weights of version {loaded.version}")
        self._end_leases()
        self._on_server = None
        try:
            await self._server.load_weights(loaded.folder, _label(loaded))
        except EngineError as error:
            if loaded is self._live:
                self._lost(error)
            else:
                await self._put(self._live)
                self._gate.open(SWAP)
            raise
        self._on_server = loaded


def is_ours(label: str | None) -> bool:
    """Whether a server has weights of ours, rather than those that it was started with."""
    return label is not None and label.startswith(OURS)


def _label(loaded: Loaded) -> str:
    return f"{OURS}{loaded.version}"


class RequestGate:
    """Holds requests back while any part of the engine has a reason to. Open at first."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._changed = asyncio.Event()

    @property
    def reason(self) -> str | None:
        """Why it is closed; None while it is open."""
        return next(iter(self._reasons.values()), None)

    def closed_by(self, part: str) -> bool:
        return part in self._reasons

    def close(self, part: str, reason: str) -> None:
        """Let no request through. Replaces the part's earlier reason."""
        self._reasons[part] = reason

    def open(self, part: str) -> None:
        """Withdraw the part's reason."""
        self._reasons.pop(part, None)
        if not self._reasons:
            self._changed.set()
            self._changed = asyncio.Event()

    async def passed(self, patience_s: float) -> None:
        """Wait until it is open. EngineUnavailable with the reason after `patience_s` seconds."""
        try:
            async with asyncio.timeout(patience_s):
                while self._reasons:
                    await self._changed.wait()
        except TimeoutError as error:
            raise EngineUnavailable(f"{self.reason} (a request waited {patience_s:g} s)") from error


@dataclass(slots=True, eq=False)
class Lease:
    """The use of weights by one response. `cut`: the weights were withdrawn."""

    of: Loaded
    cut: bool = False
    _waiting: asyncio.Task[Any] | None = field(default=None)
    """The task that waits for the next chunk."""

    def end(self) -> None:
        """Withdraw the weights: no chunk comes any more, and a pending read is cancelled."""
        if not self.cut and self._waiting is not None:
            self._waiting.cancel()
        self.cut = True

    async def chunks(self, stream: AsyncGenerator[StreamChunk, None]) -> AsyncGenerator[StreamChunk, None]:
        """The stream's chunks, up to the one that ends it or until the lease is cut.

        EngineUnavailable if the stream breaks off.
        """
        async with aclosing(stream):
            while not self.cut:
                try:
                    chunk = await self._next(stream)
                except StopAsyncIteration as error:
                    raise EngineUnavailable(BROKEN_OFF) from error
                if chunk is None:
                    return
                yield chunk
                if chunk.ended == CUT and not self.cut:
                    raise EngineUnavailable(BROKEN_OFF)
                if chunk.ended:
                    return

    async def _next(self, stream: AsyncGenerator[StreamChunk, None]) -> StreamChunk | None:
        """The next chunk; None if the lease is cut before it comes."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._waiting, cancelled_before = task, task.cancelling()
        try:
            return await anext(stream)
        except asyncio.CancelledError:
            if not self.cut or task.cancelling() > cancelled_before + 1:
                raise
            return None
        finally:
            self._waiting = None
            if self.cut:
                task.uncancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Ids, and log-probs of ids[1:] by weights that were right."""

    ids: tuple[int, ...]
    logprobs: dict[float, tuple[float, ...]] = field(default_factory=dict)
    """By the scale of the adapter: 1 are the weights themselves, 0 the base."""

    async def check(self, ask: Callable[[float], Awaitable[Sequence[float]]], dtype: str) -> None:
        """EngineError unless the same weights answer now, by a server that computes in `dtype`.

        `ask` returns the log-probs of a scale now.
        """
        for times, then in self.logprobs.items():
            now = await ask(times)
            try:
                apart = gap(then, now)
            except ValueError as error:
                raise EngineError(f"the server scored another number of ids: {error}") from error
            if times > 1.0 and (base := self.logprobs.get(0.0)) is not None:
                found = share(now, then, base)
                if not found.is_right:
                    raise EngineError(
                        f"the server's log-probs stand {found.value:.2g} of the way from the base's to those "
                        "that these weights gave, and 1 is right: it does not serve the same weights"
                    )
            elif not apart <= most(dtype):
                raise EngineError(
                    f"the server's log-probs differ from those that these weights gave by {apart:.2g} on "
                    f"average, and at most {most(dtype):g} is right: it does not serve the same weights"
                )


def proof_with(proof: Proof | None, ids: Sequence[int], times: float, logprobs: Sequence[float]) -> Proof:
    """A proof with one more answer. Answers for other ids are dropped."""
    kept = proof.logprobs if proof is not None and proof.ids == tuple(ids) else {}
    return Proof(ids=tuple(ids), logprobs={**kept, times: tuple(logprobs)})


def proof_ids(vocabulary: int) -> tuple[int, ...]:
    """The same ids each time, spread over the vocabulary."""
    return tuple((7919 * place + 17) % vocabulary for place in range(PROOF_IDS))


@contextmanager
def amplified(folder: Path, name: str, times: float) -> Iterator[Path]:
    """A temporary folder next to the adapter's, where the server can read it, with the adapter scaled.

    EngineError if it cannot be made.
    """
    copy = folder.parent / f".{name}"
    try:
        try:
            config = json.loads((folder / CONFIG).read_text())
            copy.mkdir(mode=0o700)
            (copy / CONFIG).write_text(json.dumps({**config, "lora_alpha": times * config["lora_alpha"]}))
            try:
                os.link((folder / WEIGHTS).resolve(), copy / WEIGHTS)
            except OSError:  # the disk has no hard links
                shutil.copyfile(folder / WEIGHTS, copy / WEIGHTS)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise EngineError(f"the adapter in {folder} cannot be copied for a probe: {error}") from error
        yield copy
    finally:
        with suppress(OSError):
            shutil.rmtree(copy)


def check_same_tensors(folder: Path, base: Path) -> None:
    """EngineError unless the folder holds whole weights that fit the model in `base`.

    A base in PyTorch's own format is not compared: the server then reports a misfit.
    """
    theirs = shapes_of(folder)
    if not theirs:
        raise EngineError(
            f"{folder} holds no whole weights (*.safetensors): if it holds an adapter, set engine.swap = "
            '"adapters"'
        )
    ours = shapes_of(base)
    wrong = sorted(name for name, shape in theirs.items() if ours.get(name, shape) != shape)
    unknown = sorted(theirs.keys() - ours.keys()) if ours else []
    if wrong or unknown:
        raise EngineError(
            f"The weights in {folder} do not fit the served model: {(wrong or unknown)[:3]} differ."
        )
