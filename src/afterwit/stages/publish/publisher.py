"""The publish stage: load a new version beside the live one, check it, and route requests to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from afterwit.core.adapters import SHARED
from afterwit.core.errors import AfterwitError, ProbeMismatch, VersionDamaged, VersionsUnavailable
from afterwit.core.version import Probe, Version
from afterwit.engines.port import Engine
from afterwit.stages.publish.candidates import Checkpoints, candidates
from afterwit.stages.publish.probe import BASE, Answer, Expected, answered, examined
from afterwit.stages.retry import BackOff
from afterwit.stages.worker import Report, Signals, StageHealth, work

STAGE = "publish"
SERVED = "the version that is served"
log = logging.getLogger(__name__)


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
        dtype: str,
        keep_versions: int,
        adapter: str = SHARED,
        one_at_a_time: asyncio.Lock | None = None,
    ) -> None:
        """`checkpoints` are the adapter's. `dtype` is what the learner computes in. Publishers over one
        engine, which stages one version at a time, have one lock. `keep_versions`: how many of the newest
        stay on this disk if other machines keep them too.
        """
        self._keep_versions = keep_versions
        self._engine = engine
        self._adapter = adapter
        self.one_at_a_time = one_at_a_time or asyncio.Lock()
        self._checkpoints = checkpoints
        self._published = published
        self._dtype = dtype
        self._earlier: dict[str, Sequence[float]] = {}
        """What the engine said of the probe with other weights."""
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

    async def _verify(self, number: int) -> None:
        """Before the engine sees them: damaged files must not be blamed on the model."""
        try:
            await asyncio.to_thread(self._checkpoints.verify, number)
        except VersionDamaged as error:
            raise VersionDamaged(f"version {number} is not served, an older one is: {error}") from error

    async def _check(self, version: Version) -> Answer:
        """What the engine says, if what is staged is the version; else ProbeMismatch. What the probe cannot
        tell is logged."""
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
        """What could stand in the version's place: the base, and what is served."""
        numbers = {BASE: 0, SERVED: self._engine.live(self._adapter) or version.parent or 0}
        found = {name: self._checkpoints.get(number) for name, number in numbers.items()}
        return {name: other.probe for name, other in found.items() if other is not None}

    async def _ask_of_base(self, probe: Probe) -> None:
        """What the engine says with the base's whole weights, while it still has them."""
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
