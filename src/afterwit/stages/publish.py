"""The publish stage: load a new version beside the live one, check it, and route requests to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol

from afterwit.core.adapters import SHARED
from afterwit.core.errors import (
    AfterwitError,
    ProbeMismatch,
    SettingError,
    VersionDamaged,
    VersionsUnavailable,
)
from afterwit.core.ranges import above, at_least
from afterwit.core.version import Probe, Version
from afterwit.engines.port import Capabilities, Engine
from afterwit.stages.retry import BackOff
from afterwit.stages.worker import Report, Signals, StageHealth, work

STAGE = "publish"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """When new weights go into the engine."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    poll_s: float = 1.0
    """Seconds between two looks at the versions folder."""
    adapters: int = 16
    """Adapters of somebody's own (`learner.adapters`) that the engine keeps in memory; of more, those used
    last. Another one is loaded and probed when a request asks for it."""
    idle_s: float = 900.0
    """Seconds without a request after which such an adapter is taken out of memory."""
    tolerance: float = 0.0
    """Mean |difference| of the probe's log-probs, engine against learner, up to which a version is served.
    0: 1e-4 if both compute in float32, else 0.05."""

    def __post_init__(self) -> None:
        above(self, 0, "poll_s", "idle_s")
        at_least(self, 1, "adapters")
        at_least(self, 0, "tolerance")

    def tolerance_for(self, *dtypes: str) -> float:
        """The tolerance if engine and learner compute in these torch dtypes."""
        return self.tolerance or (1e-4 if set(dtypes) == {"float32"} else 0.05)


class Checkpoints(Protocol):
    """The versions on disk."""

    def follow(self) -> None:
        """Learn of the versions that other machines wrote. VersionsUnavailable if they cannot be seen now."""

    def numbers(self) -> list[int]:
        """Every committed version's number."""

    def has_weights(self, number: int) -> bool:
        """Whether its weights are still there."""

    def get(self, number: int) -> Version | None:
        """What its manifest says."""

    def weights(self, number: int) -> Path:
        """The folder that its weights are in, on this disk."""

    def verify(self, number: int) -> None:
        """Raise VersionDamaged if a file of it is not what its manifest says."""

    def trim(self, keep: int, *, but: Collection[int] = ()) -> None:
        """Delete from this disk what other machines keep, unless it is of the newest `keep` or of `but`."""


class Publisher:
    """Has the engine serve the newest version of an adapter whose log-probs are the learner's.

    `published` records a version that is served; it may raise StoreError while the store does not know it.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        checkpoints: Checkpoints,
        published: Callable[[int], Awaitable[object]],
        tolerance: float,
        keep_versions: int,
        adapter: str = SHARED,
        one_at_a_time: asyncio.Lock | None = None,
    ) -> None:
        """`checkpoints` are the adapter's. Publishers over one engine, which stages one version at a time,
        have one lock. `keep_versions`: how many of the newest stay on this disk if other machines keep them
        too.
        """
        self._keep_versions = keep_versions
        self._engine = engine
        self._adapter = adapter
        self.one_at_a_time = one_at_a_time or asyncio.Lock()
        self._checkpoints = checkpoints
        self._published = published
        self._tolerance = tolerance
        self._refused: set[int] = set()
        self._unrecorded: int | None = None
        self._problem_at_start: AfterwitError | None = None

    async def start(self) -> None:
        """Serve what can be served before the first request. `run` reports what was wrong."""
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
        """Publish until told to stop. A refused version is the stage's health until another is served.

        `others` is what else is published in a step, of other adapters.
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
        """The shared adapter's step, then the others': a fault of one does not keep the other waiting."""
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

        Older versions, except those that were rolled back, are tried in the place of one that fails; then the
        error of the newest is raised. A version that failed its probe is not tried again; one that is damaged
        or could not be loaded is. If the versions of other machines cannot be seen, those on this disk are
        served before the error is raised.
        """
        await self._record()
        away = await self._follow()
        served = self._engine.live(self._adapter) or 0
        newer = await asyncio.to_thread(candidates, self._checkpoints, served, frozenset(self._refused))
        problem: AfterwitError | None = away
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

    async def _follow(self) -> VersionsUnavailable | None:
        """Once for all adapters."""
        if self._adapter != SHARED:
            return None
        try:
            await asyncio.to_thread(self._checkpoints.follow)
        except VersionsUnavailable as error:
            return error
        return None

    async def _publish(self, version: Version) -> None:
        folder = await asyncio.to_thread(self._checkpoints.weights, version.number)
        await self._verify(version.number)
        await self._engine.stage(version.number, folder, adapter=self._adapter)
        try:
            await self._check(version)
        except AfterwitError as error:
            if isinstance(error, ProbeMismatch):
                self._refused.add(version.number)
            await self._engine.discard()
            raise
        await self._engine.promote()
        self._unrecorded = version.number
        await asyncio.to_thread(self._checkpoints.trim, self._keep_versions, but=[version.number])

    async def _verify(self, number: int) -> None:
        """Before the engine sees them: damaged files must not be blamed on the model."""
        try:
            await asyncio.to_thread(self._checkpoints.verify, number)
        except VersionDamaged as error:
            raise VersionDamaged(f"version {number} is not served, an older one is: {error}") from error

    async def _check(self, version: Version) -> None:
        cap = self._engine.capabilities.longest_probe
        served = await self._engine.probe(version.probe.ids[:cap])
        check_probe(version, served, self._tolerance)

    async def _record(self) -> None:
        if self._unrecorded is not None:
            await self._published(self._unrecorded)
            self._unrecorded = None


def candidates(checkpoints: Checkpoints, served: int, refused: frozenset[int]) -> list[Version]:
    """Versions above the served one that may be served instead, newest first.

    None from before a version that forgets a session: it may hold what was forgotten.
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


def check_probe(version: Version, served: Sequence[float], tolerance: float) -> None:
    """ProbeMismatch unless the engine's log-probs are the learner's, up to the mean |difference|."""
    gap = probe_gap(version.probe, served)
    if not gap <= tolerance:
        raise ProbeMismatch(
            f"version {version.number} is not served, an older one is: the engine's log-probs differ from "
            f"the learner's by {gap:.2g} on average, and at most {tolerance:.2g} is right"
        )


def probe_gap(probe: Probe, served: Sequence[float]) -> float:
    """Mean |difference| in nats between the learner's log-probs and the engine's, which may score fewer."""
    gaps = [abs(learner - engine) for learner, engine in zip(probe.logprobs, served, strict=False)]
    if not gaps or len(served) > len(probe.logprobs):
        raise ProbeMismatch(f"the engine scored {len(served)} of {len(probe.logprobs)} probe tokens")
    return sum(gaps) / len(gaps)


def check_capable(capabilities: Capabilities, *, lora_rank: int, own_adapters: bool = False) -> None:
    """SettingError unless the engine takes what a learner of this rank writes (0: whole weights), and has
    adapters of somebody's own if there are any."""
    if own_adapters and not capabilities.own_adapters:
        remedy = capabilities.remedies.get("own_adapters", 'set learner.adapters to "shared"')
        raise SettingError(f"this engine serves one adapter for all: {remedy}")
    if lora_rank and not capabilities.adapters:
        remedy = capabilities.remedies.get("adapters", "set learner.lora_rank to 0")
        raise SettingError(f"this engine takes no LoRA adapters: {remedy}")
    if not lora_rank and not capabilities.whole_weights:
        remedy = capabilities.remedies.get("whole_weights", "set learner.lora_rank above 0, such as 16")
        raise SettingError(f"this engine takes no whole weights: {remedy}")
