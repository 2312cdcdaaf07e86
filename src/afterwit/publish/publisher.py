"""The publish stage: loads a new version next to the live one, checks it, and routes requests to it.

`Publisher` loads the newest version of one adapter. `OwnAdapters` decides which personal adapter is in the
engine, and when: loaded on request, unloaded when idle.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import cache

from afterwit.checkpoints.versions import Versions
from afterwit.engines.port import Capabilities, Engine, Generate, Step, Weights
from afterwit.errors import AfterwitError, ProbeMismatch, SettingError, VersionDamaged, VersionsUnavailable
from afterwit.ranges import above, at_least
from afterwit.store import AsyncStore, Store
from afterwit.turn import SHARED
from afterwit.version import AMPLIFIED, Probe, Version
from afterwit.weights.agreement import EXACT, Share, allowed, gap, most, share, unchanged
from afterwit.worker import BackOff, Report, Signals, StageHealth, work

STAGE = "publish"
SERVED = "the version that is served"
BASE = "the base"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """When the engine loads new weights, and how many adapters it keeps."""

    poll_s: float = 1.0
    """Seconds between searches for new versions."""
    adapters: int = 16
    """Most recently used personal adapters (`learner.adapters`) that stay in the engine; others are
    loaded on request."""
    idle_s: float = 900.0
    """Seconds without a request before a personal adapter is unloaded."""

    def __post_init__(self) -> None:
        above(self, 0, "poll_s", "idle_s")
        at_least(self, 1, "adapters")


class Publisher:
    """Makes the engine serve the newest version of an adapter whose log-probs match the learner's.

    `published` records a version that is served; it may raise StoreError while the store does not know it.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        checkpoints: Versions,
        published: Callable[[int], Awaitable[object]],
        dtype: str,
        keep_versions: int,
        adapter: str = SHARED,
        one_at_a_time: asyncio.Lock | None = None,
    ) -> None:
        """`checkpoints` are the adapter's. `dtype` is the learner's precision. Publishers over one engine,
        which stages one version at a time, share a lock. `keep_versions`: how many of the newest stay on this
        disk if other machines keep them too.
        """
        self._engine, self._adapter, self._checkpoints = engine, adapter, checkpoints
        self._published, self._keep_versions = published, keep_versions
        self._dtypes = (engine.facts.dtype, dtype)
        self.one_at_a_time = one_at_a_time or asyncio.Lock()
        self._earlier: dict[str, Sequence[float]] = {}
        """The engine's log-probs of the probe with other weights."""
        self._refused: set[int] = set()
        self._unrecorded: int | None = None
        self._problem_at_start: AfterwitError | None = None

    async def start(self) -> None:
        """Serve a version before the first request, if there is one. `run` reports a problem."""
        try:
            await self.step()
        except AfterwitError as error:
            log.warning("%s: %s", STAGE, error)
            self._problem_at_start = error

    async def run(
        self,
        signals: Signals,
        *,
        report: Report,
        poll_s: float,
        back_off: BackOff,
        others: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Publish until a stop signal. A refused version is the stage's health until another is served.

        `others` publishes other adapters in each step, even if the step of this one fails.
        """

        async def step() -> bool:
            problem, self._problem_at_start = self._problem_at_start, None
            worked = False
            if problem is None:
                try:
                    worked = await self.step()
                except AfterwitError as error:
                    problem = error
            if others is not None:
                worked = await others() or worked
            if problem is not None:
                raise problem
            return worked

        health = StageHealth(STAGE, report)
        lasting = (ProbeMismatch,)
        await work(step, signals=signals, health=health, poll_s=poll_s, back_off=back_off, lasting=lasting)

    async def step(self) -> bool:
        """Serve the newest version that can be served; False if that is the one served already.

        If one fails, older versions are tried, except those that were rolled back; then the error of the
        newest is raised. A version that failed its probe is not tried again; one that is damaged or could not
        be loaded is. If the versions of other machines cannot be seen, those on this disk are served before
        the error is raised.
        """
        await self._record()
        problem: AfterwitError | None = None
        if self._adapter == SHARED:  # once for all adapters
            try:
                await asyncio.to_thread(self._checkpoints.follow)
            except VersionsUnavailable as error:
                problem = error
        served, worked = self._engine.live(self._adapter) or 0, False
        newer = candidates(self._checkpoints, served, frozenset(self._refused))
        while not worked:
            try:
                if (version := await asyncio.to_thread(next, newer, None)) is None:
                    break
                async with self.one_at_a_time:
                    await self._publish(version)
                worked = True
            except AfterwitError as error:
                problem = problem or error
        await self._record()
        if problem:
            raise problem
        return worked

    async def _publish(self, version: Version) -> None:
        checkpoints, number = self._checkpoints, version.number
        unserved = f"version {number} is not served, an older one is"
        try:  # before the engine loads them: damaged files must not be blamed on the model
            folder = await asyncio.to_thread(checkpoints.weights, number)
            await asyncio.to_thread(checkpoints.verify, number)
        except (SettingError, VersionDamaged) as error:
            raise VersionDamaged(f"{unserved}: {error}") from error
        # weights that could be served by mistake
        if not (served := self._engine.live(self._adapter)):
            self._earlier.pop(SERVED, None)  # of a version that was unloaded, perhaps this one
        mistaken = {BASE: 0, SERVED: served or version.parent or 0}
        found = {name: await asyncio.to_thread(checkpoints.get, other) for name, other in mistaken.items()}
        others = {name: other.probe for name, other in found.items() if other is not None}
        if not (served or version.probe.amplified or BASE in self._earlier) and BASE in others:
            self._earlier[BASE] = await self._base_logprobs(version.probe)
        await self._engine.stage(number, folder, adapter=self._adapter)
        try:
            seen = await examine(
                self._engine, version.probe, others=others, earlier=self._earlier, dtypes=self._dtypes
            )
        except ProbeMismatch as error:
            self._refused.add(number)
            await self._engine.discard()
            raise ProbeMismatch(f"{unserved}: {error}") from error
        except AfterwitError:
            await self._engine.discard()
            raise
        alike = [name for name, share in seen.shares.items() if not share.distinguishes]
        if alike and version.restores != 0:  # the base's own weights are not news
            log.info("%s: the probe cannot tell version %d from %s", STAGE, number, " and ".join(alike))
        await self._engine.promote()
        self._earlier[SERVED] = seen.logprobs
        self._unrecorded = number
        await asyncio.to_thread(checkpoints.trim, self._keep_versions, but=[number])

    async def _base_logprobs(self, probe: Probe) -> Sequence[float]:
        """The engine's, by the base's whole weights, while it still has them."""
        await self._engine.stage(0, self._checkpoints.weights(0), adapter=self._adapter)
        try:
            return await self._engine.probe(probe.ids[: self._engine.capabilities.longest_probe])
        finally:
            await self._engine.discard()

    async def _record(self) -> None:
        if self._unrecorded is not None:
            await self._published(self._unrecorded)
            self._unrecorded = None


async def record_served(store: AsyncStore, versions: Versions, number: int) -> None:
    """The store learns from its manifest of a version that is served.

    If it forgets a session, the weights that hold it go first, as when the learner commits it.
    """
    version, now = versions.get(number), time.time()
    if version is None:
        raise VersionDamaged(f"version {number} is served, but its manifest is gone")
    if version.forgets:
        await asyncio.to_thread(versions.remove_forgotten)

    def record(store: Store) -> None:
        store.commit_version(version, now=now)
        store.published(number, now=now)

    log.info("%s: serving version %d", STAGE, number)
    await store.call(record)


def candidates(checkpoints: Versions, served: int, refused: frozenset[int]) -> Iterator[Version]:
    """Versions above the served one that may be served instead, newest first.

    The newest is among them even without its weights: serving it then fails with the reason. None from before
    a version that forgets a session: it may contain that session. For the same reason none from before a
    manifest that cannot be read: VersionDamaged then.
    """
    excluded, numbers = set(refused), checkpoints.numbers()
    for number in reversed(numbers):
        if number <= served or (version := checkpoints.get(number)) is None:
            return
        excluded.update(version.reverts)
        if number not in excluded and (number == numbers[-1] or checkpoints.has_weights(number)):
            yield version
        if version.forgets:
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    logprobs: Sequence[float]
    apart: float
    """Mean |difference| from the learner's in nats."""
    shares: Mapping[str, Share]
    """The position between others' log-probs (0) and the right ones (1), by the name of the others. Empty for
    whole weights in half precision: noise would hide it."""


async def examine(
    engine: Engine,
    probe: Probe,
    *,
    others: Mapping[str, Probe],
    earlier: Mapping[str, Sequence[float]],
    dtypes: Sequence[str],
) -> Agreement:
    """Ask for the probe's log-probs with the staged weights, and compare them as `compared`.

    `others` are probes of other weights, of which those of the same ids count, and `earlier` the engine's
    answers with those. Raises as the port's `probe` does too.
    """
    count = engine.capabilities.longest_probe
    others = {name: _cut(other, count) for name, other in others.items() if other.ids == probe.ids}
    probe, amplified = _cut(probe, count), list[float]()
    if probe.amplified:
        earlier = {**earlier, BASE: await engine.probe(probe.ids, times=0.0)}
        amplified = await engine.probe(probe.ids, times=AMPLIFIED)
    logprobs = await engine.probe(probe.ids)
    return compared(probe, logprobs, amplified, others=others, earlier=earlier, dtypes=dtypes)


def _cut(probe: Probe, count: int | None) -> Probe:
    """Its first ids; None: all."""
    ids = probe.ids[:count]
    tokens = len(ids) - 1
    return Probe(ids=ids, logprobs=probe.logprobs[:tokens], amplified=probe.amplified[:tokens])


def compared(
    probe: Probe,
    logprobs: Sequence[float],
    amplified: Sequence[float] = (),
    *,
    others: Mapping[str, Probe],
    earlier: Mapping[str, Sequence[float]],
    dtypes: Sequence[str],
) -> Agreement:
    """The agreement of an engine's log-probs with a probe, both of `dtypes`.

    `amplified` are the engine's with the adapter scaled by AMPLIFIED, left out if they overflow (float16).
    ProbeMismatch with the reason if other weights than the right ones answered, or not every id was scored.
    """
    tokens = len(probe.logprobs)
    for answer in (logprobs, amplified if probe.amplified else logprobs, earlier.get(BASE, logprobs)):
        if len(answer) != tokens:
            counts = f"{len(answer)} log-probs were given for {tokens} tokens"
            raise ProbeMismatch(f"the engine did not answer for every id of the probe: {counts}")
    limit = most(*dtypes)
    if BASE in earlier and BASE in others:
        limit = _limit_by_base(others[BASE].logprobs, earlier[BASE], dtypes)
    apart = gap(probe.logprobs, logprobs)
    if not apart <= limit:
        raise ProbeMismatch(
            f"the engine's log-probs differ from the learner's by {apart:.2g} on average, and at most "
            f"{limit:.2g} is right"
        )
    shares: dict[str, Share] = {}
    for name, other in others.items():
        if probe.amplified and other.amplified and all(map(math.isfinite, amplified)):
            found = shares[name] = share(amplified, probe.amplified, other.amplified)
        elif set(dtypes) <= set(EXACT):
            found = shares[name] = share(logprobs, probe.logprobs, other.logprobs)
        else:
            continue
        if not found.is_right:
            raise ProbeMismatch(
                f"the engine's log-probs are {found.value:.2g} of the way from those of {name} (0) to the "
                f"learner's (1, give or take {found.error:.2g}): it has other weights"
            )
    for name in earlier.keys() & others.keys():
        if unchanged(logprobs, earlier[name], probe.logprobs, others[name].logprobs):
            raise ProbeMismatch(f"the engine answers to the bit as with the weights of {name}: it has those")
    return Agreement(logprobs=logprobs, apart=apart, shares=shares)


def _limit_by_base(right: Sequence[float], answer: Sequence[float], dtypes: Sequence[str]) -> float:
    """The largest gap, in nats, that these precisions explain, by how far apart they are on the base."""
    noise, limit = gap(right, answer), most(*dtypes)
    if not noise <= limit:
        raise ProbeMismatch(
            f"the engine's log-probs of the base differ from the learner's by {noise:.2g} on average, "
            f"and at most {limit:g} is right: they do not serve and train the same model"
        )
    return allowed(noise, *dtypes)


def check_capable(
    capabilities: Capabilities, *, lora_rank: int, dtypes: tuple[str, str], own_adapters: bool = False
) -> None:
    """SettingError unless the engine accepts the versions of a learner of this rank (0: whole weights), and
    personal adapters if there are any. `dtypes` are the precision of engine and learner."""
    rank = "set learner.lora_rank "
    for needed, name, refusal, remedy in (
        (own_adapters, "own_adapters", "serves one adapter for all", 'set learner.adapters to "shared"'),
        (lora_rank > 0, "adapters", "takes no LoRA adapters", rank + "to 0"),
        (lora_rank == 0, "whole_weights", "takes no whole weights", rank + "above 0, such as 16"),
    ):
        if needed and not getattr(capabilities, name):
            raise SettingError(f"this engine {refusal}: {capabilities.remedies.get(name, remedy)}")
    engine, learner = dtypes
    if not lora_rank and engine not in EXACT and engine != learner:
        raise SettingError(
            f"the engine computes in {engine}, and would round away what an update changes of whole weights "
            f"in {learner}: let both compute in bfloat16 (learner.dtype), or the engine in float32"
        )


class OwnAdapters:
    """Implements `port.Engine` over one that serves several adapters, and keeps at most `most` personal ones
    loaded.

    Used from the event loop only. An adapter in use is never unloaded: if all are in use, a request for
    another one waits.
    """

    def __init__(
        self,
        engine: Engine,
        publisher_of: Callable[[str], Publisher],
        chains: Callable[[], Mapping[str, Sequence[int]]],
        *,
        most: int,
        idle_s: float,
        now: Callable[[], float],
    ) -> None:
        """`chains` reads the version numbers of each adapter, ascending. An adapter is unloaded after
        `idle_s` seconds without a request."""
        self._engine = engine
        self.facts, self.capabilities, self.live = engine.facts, engine.capabilities, engine.live
        self.score, self.probe, self.close = engine.score, engine.probe, engine.close
        self.stage, self.promote, self.discard = engine.stage, engine.promote, engine.discard
        self.unload = engine.unload
        self._publisher = cache(publisher_of)
        self._read_chains, self._most, self._idle_s, self._now = chains, most, idle_s, now
        self._chains: Mapping[str, Sequence[int]] = {}
        self._used_at: dict[str, float] = {}
        """When each loaded adapter was used last, least recently used first."""
        self._users: Counter[str] = Counter()
        self._leaving: set[str] = set()
        self._changing = asyncio.Lock()
        """Held while an adapter is loaded or unloaded."""
        self._freed = asyncio.Event()
        """Set, and replaced, when an adapter is no longer in use."""

    @property
    def version(self) -> int:
        return self._engine.version

    @property
    def fault(self) -> str | None:
        return self._engine.fault

    @property
    def reduced(self) -> str | None:
        return self._engine.reduced

    @property
    def loaded(self) -> list[str]:
        return [adapter for adapter in self._used_at if self._engine.live(adapter) is not None]

    async def generate(self, request: Generate) -> AsyncGenerator[Step, None]:
        """A response of a personal adapter begins once the adapter is loaded, and keeps it loaded."""
        async with AsyncExitStack() as stack:
            if request.adapter != SHARED and request.weights is Weights.LIVE:
                await stack.enter_async_context(self._serving(request.adapter))
            steps = await stack.enter_async_context(aclosing(self._engine.generate(request)))
            async for step in steps:
                yield step

    @asynccontextmanager
    async def _serving(self, adapter: str) -> AsyncIterator[None]:
        """Keep the adapter loaded while the body runs, if it has a version that can be served."""
        self._users[adapter] += 1
        try:
            if adapter in self._chains and (adapter in self._leaving or self._engine.live(adapter) is None):
                await self._load(adapter)
            self._used(adapter)
            yield
        finally:
            self._users[adapter] -= 1
            self._used(adapter)
            if not self._users[adapter]:
                del self._users[adapter]
                self._notify()

    async def step(self) -> bool:
        """Update the loaded adapters to their newest versions, and unload idle ones. Whether anything
        changed.

        Raises the first error after all have been tried.
        """
        self._chains = await asyncio.to_thread(self._read_chains)
        changed, problem = False, None
        for adapter in self.loaded:
            async with self._changing:
                try:
                    if (
                        not self._users[adapter]
                        and self._now() - self._used_at.get(adapter, 0.0) > self._idle_s
                    ):
                        await self._unload(adapter)
                        changed = True
                    elif self._chains.get(adapter, (0,))[-1] > (self._engine.live(adapter) or 0):
                        changed = await self._publisher(adapter).step() or changed
                except AfterwitError as error:
                    problem = problem or error
        self._notify()
        if problem is not None:
            raise problem
        return changed

    async def _load(self, adapter: str) -> None:
        """If its newest version cannot be served, an older one is loaded, or the base answers."""
        while True:
            async with self._changing:
                if self._engine.live(adapter) is not None:
                    return
                full = len(self.loaded) >= self._most
                idlest = next((each for each in self.loaded if not self._users[each]), None)
                if full and idlest is not None:
                    await self._unload(idlest)
                if not full or idlest is not None:
                    try:
                        await self._publisher(adapter).step()
                    except AfterwitError as error:
                        log.warning("the adapter %s: %s", adapter, error)
                    return
                freed = self._freed
            await freed.wait()

    async def _unload(self, adapter: str) -> None:
        """A request that arrives meanwhile waits until it is unloaded, and loads it again."""
        self._leaving.add(adapter)
        try:
            await self._engine.unload(adapter)
            self._used_at.pop(adapter, None)
        finally:
            self._leaving.remove(adapter)

    def _used(self, adapter: str) -> None:
        if self._engine.live(adapter) is not None:
            self._used_at.pop(adapter, None)
            self._used_at[adapter] = self._now()

    def _notify(self) -> None:
        self._freed.set()
        self._freed = asyncio.Event()
