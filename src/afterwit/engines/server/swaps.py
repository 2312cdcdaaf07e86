"""New weights as adapters beside each other: each version has a name of its own on the server.

A response ends with the adapter that it began with. An adapter that is live no more is unloaded once no
response uses it. The base stays as it is, and answers beside them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from afterwit.adapters import SHARED
from afterwit.agreement import gap, most, share
from afterwit.checkpoints.files import STATE
from afterwit.engines.port import Weights
from afterwit.engines.server.client import Door
from afterwit.engines.server.server import CUT, Piece, Server
from afterwit.errors import EngineError, EngineUnavailable

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


class Swap(Protocol):
    """`stage`, `probe`, `promote`, `discard` and `unload` are the port's."""

    @property
    def version(self) -> int:
        """The version that is live."""

    @property
    def label(self) -> str | None:
        """What the server must say of its weights; None: anything."""

    def live(self, adapter: str) -> int | None:
        """The port's `live`."""

    def lease(self, weights: Weights, adapter: str) -> AbstractContextManager[Lease]:
        """The weights that a response now begins with. EngineError if the server does not have them."""

    async def stage(self, version: int, folder: Path, adapter: str) -> None: ...

    async def probe(self, ids: Sequence[int], times: float) -> list[float]: ...

    async def promote(self) -> None: ...

    async def discard(self) -> None: ...

    async def unload(self, adapter: str) -> None: ...

    async def recover(self) -> None:
        """Bring the live weights back to a server that was away, and check that it serves them."""

    async def close(self) -> None:
        """End all leases, and leave nothing of ours on the server."""


LENGTH = 24
Ask = Callable[[float], Awaitable[Sequence[float]]]
"""The log-probs now, of an adapter that is taken so many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Ids, and log-probs of ids[1:] by weights that were right."""

    ids: tuple[int, ...]
    said: dict[float, tuple[float, ...]] = field(default_factory=dict)
    """By how many times the adapter was taken: 1 are the weights themselves, 0 the base's."""

    async def check(self, ask: Ask, dtype: str) -> None:
        """EngineError unless the same weights answer now, by a server that computes in `dtype`."""
        for times, then in self.said.items():
            now = await ask(times)
            try:
                apart = gap(then, now)
            except ValueError as error:
                raise EngineError(f"the server scored another number of ids: {error}") from error
            if times > 1.0 and (base := self.said.get(0.0)) is not None:
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


def proof_with(proof: Proof | None, ids: Sequence[int], times: float, said: Sequence[float]) -> Proof:
    """A proof with one more answer; of other ids it begins anew."""
    kept = proof.said if proof is not None and proof.ids == tuple(ids) else {}
    return Proof(ids=tuple(ids), said={**kept, times: tuple(said)})


def sample_ids(vocabulary: int) -> tuple[int, ...]:
    """Ids spread over a vocabulary, alike each time."""
    return tuple((7919 * place + 17) % vocabulary for place in range(LENGTH))


BROKEN_OFF = "the server broke off a response"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Weights on the server."""

    version: int
    folder: Path
    name: str | None
    """The adapter's name on the server; None: the model without one."""
    adapter: str = SHARED
    """Whose version it is."""


@dataclass(slots=True, eq=False)
class Lease:
    """The use of weights by one response. `cut`: they were taken away."""

    of: Loaded
    cut: bool = False
    _waiting: asyncio.Task[Any] | None = field(default=None)
    """Who waits for the next piece."""

    def end(self) -> None:
        """Take the weights away: no piece comes any more, and one that is waited for is given up."""
        if not self.cut and self._waiting is not None:
            self._waiting.cancel()
        self.cut = True

    async def pieces(self, stream: AsyncGenerator[Piece, None]) -> AsyncGenerator[Piece, None]:
        """The stream's pieces, up to the one that ends it or until the lease is cut.

        EngineUnavailable if the stream breaks off.
        """
        async with aclosing(stream):
            while not self.cut:
                try:
                    piece = await self._next(stream)
                except StopAsyncIteration as error:
                    raise EngineUnavailable(BROKEN_OFF) from error
                if piece is None:
                    return
                yield piece
                if piece.ended == CUT and not self.cut:
                    raise EngineUnavailable(BROKEN_OFF)
                if piece.ended:
                    return

    async def _next(self, stream: AsyncGenerator[Piece, None]) -> Piece | None:
        """The next piece; None if the lease is cut before it comes. A time limit each would cost more."""
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


class Leases:
    """The leases of all responses under way."""

    def __init__(self) -> None:
        self._held: set[Lease] = set()

    @contextmanager
    def of(self, loaded: Loaded) -> Iterator[Lease]:
        """A lease for as long as the context lasts."""
        lease = Lease(loaded)
        self._held.add(lease)
        try:
            yield lease
        finally:
            self._held.remove(lease)

    def uses(self, loaded: Loaded) -> bool:
        """Whether a response is under way with these weights."""
        return any(lease.of is loaded for lease in self._held)

    def end(self) -> None:
        """Take the weights away from every response."""
        for lease in self._held:
            lease.end()


LONGEST_HEADER = 100 << 20
"""Bytes: the format's own limit."""

Shapes = dict[str, tuple[int, ...]]


def weights_of(folder: Path) -> list[Path]:
    """The safetensors files that hold a model's weights, by name; not the learner's own state."""
    return sorted(path for path in folder.glob("*.safetensors") if path.name != STATE)


def check_same_tensors(folder: Path, base: Path) -> None:
    """EngineError unless the folder holds whole weights that fit the model in `base`.

    A base in PyTorch's own format is not compared: the server then finds what does not fit.
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


def shapes_of(folder: Path) -> Shapes:
    """The shape of each tensor of a model's weights, by name. EngineError if a file cannot be read."""
    return {name: shape for path in weights_of(folder) for name, shape in _header(path).items()}


def _header(path: Path) -> Shapes:
    """The format's header: its length in eight bytes, then JSON."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > LONGEST_HEADER:
                raise ValueError(f"a header of {length} bytes")
            found = json.loads(file.read(length))
        return {name: tuple(each["shape"]) for name, each in found.items() if name != "__metadata__"}
    except (OSError, ValueError, struct.error, LookupError, TypeError, AttributeError) as error:
        raise EngineError(f"{path} is not a file of weights: {error}") from error


CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@contextmanager
def amplified(folder: Path, name: str, times: float) -> Iterator[Path]:
    """A folder beside the adapter's, where the server reads too; it is gone afterwards.

    EngineError if it cannot be made.
    """
    place = folder.parent / f".{name}"
    try:
        try:
            config = json.loads((folder / CONFIG).read_text())
            place.mkdir(mode=0o700)
            (place / CONFIG).write_text(json.dumps({**config, "lora_alpha": times * config["lora_alpha"]}))
            _same(folder / WEIGHTS, place / WEIGHTS)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise EngineError(f"the adapter in {folder} cannot be copied for a probe: {error}") from error
        yield place
    finally:
        with suppress(OSError):
            shutil.rmtree(place)


def _same(path: Path, copy: Path) -> None:
    """A hard link, or a copy if the disk has none."""
    try:
        os.link(path.resolve(), copy)
    except OSError:
        shutil.copyfile(path, copy)
