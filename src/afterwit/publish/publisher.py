"""The publish stage: loads a new version next to the live one, checks it, and routes requests to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol

from afterwit.adapters import SHARED
from afterwit.agreement import EXACT, Share, allowed, gap, most, share, unchanged
from afterwit.engines.port import Capabilities, Engine
from afterwit.errors import AfterwitError, ProbeMismatch, SettingError, VersionDamaged, VersionsUnavailable
from afterwit.ranges import above, at_least
from afterwit.retry import BackOff
from afterwit.version import AMPLIFIED, Probe, Version
from afterwit.worker import Report, Signals, StageHealth, work

STAGE = "publish"
SERVED = "the version that is served"
BASE = "the base"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """When the engine loads new weights, and how many adapters it keeps."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    poll_s: float = 1.0
    """Seconds between two looks at the versions folder."""
    adapters: int = 16
    """Personal adapters (`learner.adapters`) in the engine, the last used; others are loaded and probed on
    request."""
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
        checkpoints: Checkpoints,
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
        self._keep_versions = keep_versions
        self._engine = engine
        self._adapter = adapter
        self.one_at_a_time = one_at_a_time or asyncio.Lock()
        self._checkpoints = checkpoints
        self._published = published
        self._dtype = dtype
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

        `others` publishes other adapters in each step.
        """
        await work(
            partial(self._reporting_step, others),
            signals=signals,
            health=StageHealth(STAGE, report),
            poll_s=poll_s,
            back_off=back_off,
            lasting=(ProbeMismatch,),
        )

    async def _reporting_step(self, others: Callable[[], Awaitable[bool]] | None) -> bool:
        """The shared adapter's step, then the others', even if the first one fails."""
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
        served = self._engine.live(self._adapter) or 0
        newer = await asyncio.to_thread(candidates, self._checkpoints, served, frozenset(self._refused))
        for version in newer:
            try:
                async with self.one_at_a_time:
                    await self._publish(version)
            except AfterwitError as error:
                problem = problem or error
            else:
                break
        await self._record()
        if problem:
            raise problem
        return bool(newer)

    async def _publish(self, version: Version) -> None:
        folder = await asyncio.to_thread(self._checkpoints.weights, version.number)
        try:  # before the engine loads them: damaged files must not be blamed on the model
            await asyncio.to_thread(self._checkpoints.verify, version.number)
        except VersionDamaged as error:
            raise VersionDamaged(
                f"version {version.number} is not served, an older one is: {error}"
            ) from error
        await self._ask_of_base(version.probe)
        await self._engine.stage(version.number, folder, adapter=self._adapter)
        try:
            answer = await self._check(version)
        except AfterwitError as error:
            if isinstance(error, ProbeMismatch):
                self._refused.add(version.number)
            await self._engine.discard()
            raise
        await self._engine.promote()
        self._earlier[SERVED] = answer.logprobs
        self._unrecorded = version.number
        await asyncio.to_thread(self._checkpoints.trim, self._keep_versions, but=[version.number])

    async def _check(self, version: Version) -> Answer:
        """The engine's answer, if the staged weights are the version; else ProbeMismatch."""
        others = await asyncio.to_thread(self._others, version)
        dtypes = (self._engine.facts.dtype, self._dtype)
        expected = Expected(probe=version.probe, others=others, dtypes=dtypes)
        expected = expected.cut(self._engine.capabilities.longest_probe)
        answer = await answered(self._engine, expected.probe, self._earlier)
        try:
            found = examined(expected, answer)
        except ProbeMismatch as error:
            words = f"version {version.number} is not served, an older one is: {error}"
            raise ProbeMismatch(words) from error
        if found.alike:
            alike = " and ".join(found.alike)
            log.info("%s: the probe does not tell version %d from %s", STAGE, version.number, alike)
        return answer

    def _others(self, version: Version) -> dict[str, Probe]:
        """The probes of weights that could be served by mistake: the base, and the served version."""
        numbers = {BASE: 0, SERVED: self._engine.live(self._adapter) or version.parent or 0}
        found = {name: self._checkpoints.get(number) for name, number in numbers.items()}
        return {name: other.probe for name, other in found.items() if other is not None}

    async def _ask_of_base(self, probe: Probe) -> None:
        """Record the engine's log-probs by the base's whole weights, while it still has them."""
        if probe.amplified or BASE in self._earlier or self._engine.live(self._adapter):
            return
        if await asyncio.to_thread(self._checkpoints.get, 0) is None:
            return
        ids = probe.ids[: self._engine.capabilities.longest_probe]
        await self._engine.stage(0, self._checkpoints.weights(0), adapter=self._adapter)
        try:
            self._earlier[BASE] = await self._engine.probe(ids)
        finally:
            await self._engine.discard()

    async def _record(self) -> None:
        if self._unrecorded is not None:
            await self._published(self._unrecorded)
            self._unrecorded = None


class Checkpoints(Protocol):
    """The versions on disk."""

    def follow(self) -> None:
        """Look for versions of other machines. VersionsUnavailable if they cannot be seen now."""

    def numbers(self) -> list[int]:
        """Every committed version's number."""

    def has_weights(self, number: int) -> bool:
        """Whether its weights still exist."""

    def get(self, number: int) -> Version | None:
        """Its manifest."""

    def weights(self, number: int) -> Path:
        """The folder of its weights, on this disk."""

    def verify(self, number: int) -> None:
        """Raise VersionDamaged if a file differs from its manifest."""

    def trim(self, keep: int, *, but: Collection[int] = ()) -> None:
        """Delete versions from this disk that other machines keep, except the newest `keep` and `but`."""


def candidates(checkpoints: Checkpoints, served: int, refused: frozenset[int]) -> list[Version]:
    """Versions above the served one that may be served instead, newest first.

    None from before a version that forgets a session: it may contain that session.
    """
    numbers = sorted((number for number in checkpoints.numbers() if number > served), reverse=True)
    known = [
        version
        for number in numbers
        if checkpoints.has_weights(number) and (version := checkpoints.get(number))
    ]
    rolled_back = {number for version in known for number in version.reverts}
    oldest = max((version.number for version in known if version.forgets), default=0)
    return [
        version
        for version in known
        if version.number >= oldest and version.number not in refused | rolled_back
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The log-probs of a probe by the right weights, and by others that could be served by mistake."""

    probe: Probe
    others: Mapping[str, Probe] = field(default_factory=dict)
    """By a name for messages. Probes of other ids are left out."""
    dtypes: tuple[str, ...]
    """Precision of engine and learner."""

    def __post_init__(self) -> None:
        same = {name: other for name, other in self.others.items() if other.ids == self.probe.ids}
        object.__setattr__(self, "others", same)

    def cut(self, ids: int | None) -> Expected:
        """The same for the first ids only; None: for all."""
        if ids is None or ids >= len(self.probe.ids):
            return self
        others = {name: _cut(other, ids) for name, other in self.others.items()}
        return replace(self, probe=_cut(self.probe, ids), others=others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An engine's log-probs of a probe with the staged weights."""

    logprobs: Sequence[float]
    amplified: Sequence[float] = ()
    """With the adapter scaled by AMPLIFIED; (): these are whole weights."""
    earlier: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Its answers with other weights, by the names of `Expected.others`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The agreement of an answer with the right weights."""

    apart: float
    """Mean |difference| in nats."""
    noise: float | None
    """The same for the base; None: it was not asked."""
    shares: Mapping[str, Share]
    """The answer's position between others (0) and the right weights (1). Empty for whole weights in half
    precision: noise would hide it."""

    @property
    def alike(self) -> list[str]:
        """Others that the probe cannot tell from the right weights."""
        return [name for name, found in self.shares.items() if not found.distinguishes]


async def answered(engine: Engine, probe: Probe, earlier: Mapping[str, Sequence[float]]) -> Answer:
    """The engine's answers with the staged weights. Raises as the port's `probe` does."""
    if not probe.amplified:
        return Answer(logprobs=await engine.probe(probe.ids), earlier=earlier)
    base = await engine.probe(probe.ids, times=0.0)
    amplified = await engine.probe(probe.ids, times=AMPLIFIED)
    logprobs = await engine.probe(probe.ids)
    return Answer(logprobs=logprobs, amplified=amplified, earlier={**earlier, BASE: base})


def examined(expected: Expected, answer: Answer) -> Found:
    """Their agreement. ProbeMismatch with the reason if other weights than the right ones answered, or not
    every id was scored."""
    probe, noise, limit = expected.probe, None, most(*expected.dtypes)
    if BASE in answer.earlier and BASE in expected.others:
        noise = _gap(expected.others[BASE].logprobs, answer.earlier[BASE])
        if not noise <= limit:
            raise ProbeMismatch(
                f"the engine's log-probs of the base differ from the learner's by {noise:.2g} on average, "
                f"and at most {limit:g} is right: they do not serve and train the same model"
            )
        limit = allowed(noise, *expected.dtypes)
    apart = _gap(probe.logprobs, answer.logprobs)
    if not apart <= limit:
        raise ProbeMismatch(
            f"the engine's log-probs differ from the learner's by {apart:.2g} on average, and at most "
            f"{limit:.2g} is right"
        )
    if probe.amplified:
        _gap(probe.amplified, answer.amplified)
    shares = dict(_shares(expected, answer))
    for name, found in shares.items():
        if not found.is_right:
            raise ProbeMismatch(
                f"the engine's log-probs stand {found.value:.2g} of the way from those of {name} (0) to the "
                f"learner's (1, give or take {found.error:.2g}): it has other weights"
            )
    for name, earlier in answer.earlier.items():
        other = expected.others.get(name)
        if other and unchanged(answer.logprobs, earlier, probe.logprobs, other.logprobs):
            raise ProbeMismatch(f"the engine answers to the bit as with the weights of {name}: it has those")
    return Found(apart=apart, noise=noise, shares=shares)


def _shares(expected: Expected, answer: Answer) -> Iterator[tuple[str, Share]]:
    probe = expected.probe
    for name, other in expected.others.items():
        if probe.amplified and other.amplified:
            yield name, share(answer.amplified, probe.amplified, other.amplified)
        elif set(expected.dtypes) <= set(EXACT):
            yield name, share(answer.logprobs, probe.logprobs, other.logprobs)


def _gap(learner: Sequence[float], engine: Sequence[float]) -> float:
    try:
        return gap(learner, engine)
    except ValueError as error:
        raise ProbeMismatch(f"the engine did not answer for every id of the probe: {error}") from error


def _cut(probe: Probe, ids: int) -> Probe:
    return Probe(
        ids=probe.ids[:ids], logprobs=probe.logprobs[: ids - 1], amplified=probe.amplified[: ids - 1]
    )


def check_capable(
    capabilities: Capabilities, *, lora_rank: int, dtypes: tuple[str, str], own_adapters: bool = False
) -> None:
    """SettingError unless the engine accepts the versions of a learner of this rank (0: whole weights), and
    personal adapters if there are any. `dtypes` are the precision of engine and learner."""
    if own_adapters and not capabilities.own_adapters:
        remedy = capabilities.remedies.get("own_adapters", 'set learner.adapters to "shared"')
        raise SettingError(f"this engine serves one adapter for all: {remedy}")
    if lora_rank and not capabilities.adapters:
        remedy = capabilities.remedies.get("adapters", "set learner.lora_rank to 0")
        raise SettingError(f"this engine takes no LoRA adapters: {remedy}")
    if not lora_rank and not capabilities.whole_weights:
        remedy = capabilities.remedies.get("whole_weights", "set learner.lora_rank above 0, such as 16")
        raise SettingError(f"this engine takes no whole weights: {remedy}")
    engine, learner = dtypes
    if not lora_rank and engine not in EXACT and engine != learner:
        raise SettingError(
            f"the engine computes in {engine}, and would round away what an update changes of whole weights "
            f"in {learner}: let both compute in bfloat16 (learner.dtype), or the engine in float32"
        )
