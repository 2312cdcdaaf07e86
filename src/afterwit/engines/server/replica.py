"""One server of the model: its health, the weights that are loaded there, and the responses that use them.

New weights come as adapters next to each other (`AdapterReplica`), or as whole weights in place of the old
ones (`WholeReplica`). Each version is loaded before a request names it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

from afterwit.engines.model_files import shapes_of
from afterwit.engines.port import CLOSED, Capabilities, Facts, Score, Scored, Step, Weights, require_staged
from afterwit.engines.server.client import gathered, server_faults
from afterwit.engines.server.server import CUT, ServedResponse, Server
from afterwit.errors import AfterwitError, EngineError, EngineUnavailable
from afterwit.turn import SHARED
from afterwit.weights.adapter import CONFIG
from afterwit.weights.agreement import gap, most, share

OURS = "afterwit-"
"""Labels of our weights on a server begin with this."""
AWAY, SWAP = "away", "swap"
BROKEN_OFF = "the server broke off a response"
PROOF_IDS = 24
SCORED_AT_ONCE = 8
"""Concurrent calls of one `score`. A server batches several prompts, while people's requests wait."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Proof:
    """Ids, and log-probs of ids[1:] by certain weights: they show later whether the same weights answer."""

    ids: tuple[int, ...] = ()
    logprobs: dict[float, tuple[float, ...]] = field(default_factory=dict)
    """By the scale of the adapter: 1 are the weights themselves, 0 the base."""

    def record(self, ids: Sequence[int], times: float, logprobs: Sequence[float]) -> None:
        """Add an answer. Answers for other ids are dropped."""
        if self.ids != tuple(ids):
            self.ids, self.logprobs = tuple(ids), {}
        self.logprobs[times] = tuple(logprobs)

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
                        f"the server's log-probs are {found.value:.2g} of the way from the base's to those "
                        "that these weights gave, and 1 is right: it does not serve the same weights"
                    )
            elif not apart <= most(dtype):
                raise EngineError(
                    f"the server's log-probs differ from those that these weights gave by {apart:.2g} on "
                    f"average, and at most {most(dtype):g} is right: it does not serve the same weights"
                )


@dataclass(slots=True, eq=False, kw_only=True)
class Loaded:
    version: int
    folder: Path
    name: str | None = None
    """The adapter's name on the server; None: the model without one."""
    adapter: str = SHARED
    proof: Proof = field(default_factory=Proof)


@dataclass(slots=True, eq=False)
class Lease:
    """The use of weights by one response. `cut`: the server takes other weights, and ends the response."""

    of: Loaded
    cut: bool = False


class Replica(ABC):
    """A server that has the base's weights at first, and other versions once they are loaded.

    `stage`, `probe`, `promote`, `discard` and `unload` are as the port's. A server that was away loses all
    versions: the fleet then loads the live ones again.
    """

    def __init__(
        self, name: str, server: Server, base: Path, *, facts: Facts, capabilities: Capabilities
    ) -> None:
        self.name, self.folder, self.facts, self.capabilities = name, base, facts, capabilities
        self.proof = Proof()
        """Of the base's weights."""
        self.staged: Loaded | None = None
        self.begun = 0
        """Requests so far."""
        self.trouble: dict[str, tuple[str, float]] = {}
        """By adapter: why it did not accept the live weights, and when to try again, by the loop's clock."""
        self.reported = asyncio.Event()
        """Set at a fault: look at once."""
        self._server, self._base = server, Loaded(version=0, folder=base)
        self._on_server: Loaded | None = self._base
        """The model's own weights there; None: unknown."""
        self._live: dict[str, Loaded] = {}
        self._label: str | None = None
        """The label that the server must report for its weights; None: any."""
        self._leases: set[Lease] = set()
        self._retired: set[Loaded] = set()
        """Adapters that are no longer live, until no response uses them."""
        self._unloading: set[asyncio.Task[None]] = set()
        self._reasons: dict[str, str] = {}
        self._one_at_a_time = asyncio.Lock()
        self._closed = False

    @classmethod
    async def open(
        cls, name: str, server: Server, base: Path, *, facts: Facts, capabilities: Capabilities, swap: str
    ) -> Replica:
        """Of a server that fits the model in `base`, with the base's weights."""
        kind = AdapterReplica if swap == "adapters" else WholeReplica
        folder = await asyncio.to_thread(base.resolve)
        replica = kind(name, server, folder, facts=facts, capabilities=capabilities)
        await replica._begin()
        return replica

    @property
    def fault(self) -> str | None:
        """Why it serves nothing now; None if it does."""
        return CLOSED if self._closed else next(iter(self._reasons.values()), None)

    @property
    def under_way(self) -> int:
        return len(self._leases)

    def version(self, adapter: str) -> int:
        """The version of an adapter that new responses use; 0: the base."""
        return self._live.get(adapter, self._base).version

    def out(self, oldest: int, adapter: str = SHARED) -> str | None:
        """Why it does not serve an adapter in version `oldest` or newer; None if it does."""
        if self.fault is not None:
            return self.fault
        if (has := self.version(adapter)) < oldest:
            reason, _ = self.trouble.get(adapter, ("", 0.0))
            return reason or f"it has version {has} and takes version {oldest}"
        return None

    async def look(self) -> None:
        """Check the server's health, which `fault` reports then. Never raises."""
        try:
            label = self._label
            found = await self._server.check()
            if AWAY in self._reasons:
                async with self._one_at_a_time:
                    if found is None or found != self._label:
                        await self._begin()
                    self._reasons.pop(AWAY, None)
                log.warning("the engine's server is back")
            elif label is not None and label == self._label and found not in (None, label):
                raise EngineUnavailable(f"the server was restarted: its weights are {found}, not {label}")
        except EngineUnavailable as error:
            self._lost(error)
        except AfterwitError as error:
            self._reasons[AWAY] = str(error)
        except Exception as error:  # a fault of our own must not end the watch
            reason = f"watching the server failed: {type(error).__name__} (see the log)"
            if self._reasons.get(AWAY) != reason:
                log.exception("watching the engine's server failed")
            self._reasons[AWAY] = reason

    async def _begin(self) -> None:
        """With the base's weights. EngineError unless they give the log-probs of the first time."""
        label = await self._server.check()
        if label is not None and label.startswith(OURS):  # it kept the weights of an earlier run
            await self._server.load_weights(self._base.folder, "base")
        if self.proof.ids:
            score = partial(self._server.score, self.proof.ids, None)
            await self.proof.check(lambda times: score(), self.facts.dtype)
        else:
            ids = [(7919 * place + 17) % self.facts.vocabulary for place in range(PROOF_IDS)]
            self.proof.record(ids, 1.0, await self._server.score(ids, None))
        lost = (*self._live.values(), *(() if self.staged is None else (self.staged,)))
        self.staged, self._label, self._on_server = None, None, self._base
        self._live.clear()
        for loaded in lost:  # a server that was out of reach still has them
            self._retire(loaded)
        self._reasons.clear()

    def _lost(self, error: Exception) -> None:
        """Serve nothing until the server is seen to be fit."""
        if self._closed:
            return
        if AWAY not in self._reasons:
            log.warning("the engine's server is away: %s", error)
        self._reasons[AWAY] = str(error)
        self.reported.set()

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """As `server_faults`; a server that is away or dying is reported."""
        try:
            async with server_faults(self._server.check):
                yield
        except EngineUnavailable as error:
            self._lost(error)
            raise

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        async with self._one_at_a_time, self._watched():
            yield

    @contextmanager
    def _leased(self, weights: Weights, adapter: str) -> Iterator[Lease]:
        """The weights of a response that begins now. EngineError for a base that is not there."""
        if weights is Weights.BASE and not self.capabilities.base_weights:
            raise EngineError(
                'the server has no base weights next to the live ones: set judge.weights = "live"'
            )
        lease = Lease(self._base if weights is Weights.BASE else self._live.get(adapter, self._base))
        self._leases.add(lease)
        self.begun += 1
        try:
            yield lease
        finally:
            self._leases.remove(lease)
            self._unload_unused()

    async def rest(
        self, response: ServedResponse, weights: Weights, adapter: str = SHARED
    ) -> AsyncGenerator[Step, None]:
        """The rest of a response, up to its end or until the server loads new weights.

        Call it only without a `fault`. EngineUnavailable if the server breaks off.
        """
        async with self._watched():
            with self._leased(weights, adapter) as lease:
                name, version = lease.of.name, lease.of.version
                if (forced := response.forced(version)) is not None:
                    yield forced
                try:
                    turns = True
                    while turns:
                        async with aclosing(self._server.sample(response.rest(name))) as stream:
                            async for chunk in stream:
                                if lease.cut:
                                    return
                                if (step := response.take(chunk, version)) is not None:
                                    yield step
                                if chunk.ended == CUT and not (lease.cut or response.turns):
                                    raise EngineUnavailable(BROKEN_OFF)
                                if chunk.ended or response.turns:
                                    break
                            else:
                                raise EngineUnavailable(BROKEN_OFF)
                        turns = response.turns and not lease.cut
                except EngineUnavailable:
                    if not lease.cut:
                        raise

    async def score(self, rows: Sequence[Score], *, top: int, weights: Weights) -> list[Scored]:
        """One call per row, several at once, all by the weights that are live at the start."""
        with self._leased(weights, SHARED) as lease:
            async with self._watched():
                scored = await gathered(
                    [partial(self._scored, row, top, lease.of) for row in rows], SCORED_AT_ONCE
                )
            if lease.cut:
                raise EngineUnavailable("the server took new weights while rows were scored")
        return scored

    async def _scored(self, row: Score, top: int, by: Loaded) -> Scored:
        ids = (*row.prompt_ids, *row.response_ids)
        found = await self._server.top_logprobs(ids, by.name, first=len(row.prompt_ids), top=top)
        return Scored.of(found, by.version)

    async def stage(self, version: int, folder: Path, *, adapter: str = SHARED) -> None:
        async with self._changing():
            await self._drop()
            self.staged = await self._loaded(version, folder, adapter)

    async def probe(self, ids: Sequence[int], *, times: float = 1.0) -> list[float]:
        async with self._changing():
            staged = require_staged(self.staged)
            logprobs = await self._logprobs(staged, ids, times)
            staged.proof.record(ids, times, logprobs)
            return logprobs

    async def promote(self) -> None:
        async with self._changing():
            await self._serve(require_staged(self.staged))
            self.staged = None

    async def discard(self) -> None:
        async with self._changing():
            await self._drop()

    @abstractmethod
    async def _loaded(self, version: int, folder: Path, adapter: str) -> Loaded: ...

    @abstractmethod
    async def _logprobs(self, staged: Loaded, ids: Sequence[int], times: float) -> list[float]: ...

    @abstractmethod
    async def _serve(self, staged: Loaded) -> None: ...

    @abstractmethod
    async def _drop(self) -> None: ...

    async def unload(self, adapter: str) -> None:
        self._retire(self._live.pop(adapter, None))

    async def close(self) -> None:
        """Leave nothing of ours on the server. Running responses get EngineUnavailable."""
        if self._closed:
            return
        self._closed = True
        staged = () if self.staged is None else (self.staged,)
        names = {each.name for each in (*self._live.values(), *self._retired, *staged)}
        await asyncio.gather(*self._unloading, *(self._server.forget(name) for name in names if name))
        await self._server.close()

    def _retire(self, loaded: Loaded | None) -> None:
        if loaded is not None and loaded.name is not None:
            self._retired.add(loaded)
        self._unload_unused()

    def _unload_unused(self) -> None:
        for loaded in self._retired - {lease.of for lease in self._leases}:
            self._retired.remove(loaded)
            assert loaded.name is not None, "the base is not retired"
            task = asyncio.create_task(self._server.forget(loaded.name))
            self._unloading.add(task)
            task.add_done_callback(self._unloading.discard)


class AdapterReplica(Replica):
    """Each version is an adapter under a name of its own.

    A response ends with the adapter that it began with. An adapter that is no longer live is unloaded once no
    response uses it. The base stays, and answers next to the adapters.
    """

    async def _loaded(self, version: int, folder: Path, adapter: str) -> Loaded:
        loaded = Loaded(version=version, folder=folder, adapter=adapter)
        if await asyncio.to_thread((folder / CONFIG).is_file):
            loaded.name = f"{OURS}{version}-{uuid4().hex[:8]}"
            await self._server.load_adapter(loaded.name, folder)
        elif folder != self._base.folder:
            raise EngineError(
                f"{folder} holds no adapter ({CONFIG}), and this engine swaps adapters: set "
                'learner.lora_rank above zero, or engine.swap = "whole"'
            )
        return loaded

    async def _logprobs(self, staged: Loaded, ids: Sequence[int], times: float) -> list[float]:
        if staged.name is None or times in (0.0, 1.0):
            return await self._server.score(ids, staged.name if times else None)
        return await self._server.score_scaled(ids, staged.name, staged.folder, times)

    async def _serve(self, staged: Loaded) -> None:
        old = self._live.get(staged.adapter)
        self._live[staged.adapter] = staged
        self._retire(old)

    async def _drop(self) -> None:
        staged, self.staged = self.staged, None
        self._retire(staged)


class WholeReplica(Replica):
    """The server has one set of weights. From `probe`, or else `promote`, to the end of the swap it serves
    nothing, and running responses are cut."""

    async def _loaded(self, version: int, folder: Path, adapter: str) -> Loaded:
        if adapter != SHARED:
            raise EngineError('this engine swaps whole weights: set engine.swap = "adapters"')
        if folder == self._base.folder and version == self._base.version:
            return self._base
        await asyncio.to_thread(check_same_tensors, folder, self._base.folder)
        return Loaded(version=version, folder=folder)

    async def _logprobs(self, staged: Loaded, ids: Sequence[int], times: float) -> list[float]:
        """Whole weights are not scaled by `times`."""
        await self._put(staged)
        return await self._server.score(ids, None)

    async def _serve(self, staged: Loaded) -> None:
        await self._put(staged)
        self._live[SHARED] = staged
        self._reasons.pop(SWAP, None)

    async def _drop(self) -> None:
        self.staged = None
        await self._put(self._live.get(SHARED, self._base))
        self._reasons.pop(SWAP, None)

    async def _put(self, loaded: Loaded) -> None:
        """Have the server load these weights; if they do not fit, the live ones again."""
        if self._on_server is loaded:
            return
        self._reasons[SWAP] = f"the server takes the weights of version {loaded.version}"
        for lease in self._leases:
            lease.cut = True
        self._on_server = self._label = None
        live, label = self._live.get(SHARED, self._base), f"{OURS}{loaded.version}"
        try:
            await self._server.load_weights(loaded.folder, label)
        except EngineError as error:
            if loaded is live:
                self._lost(error)
            else:
                await self._put(live)
                self._reasons.pop(SWAP, None)
            raise
        self._on_server, self._label = loaded, label


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
