"""The publish stage: see a new version, load it beside the live one, probe it, route to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from afterwit.core.errors import AfterwitError, ProbeMismatch
from afterwit.core.ranges import above, at_least
from afterwit.core.version import Version
from afterwit.engines.port import Engine
from afterwit.stages.retry import BackOff
from afterwit.stages.worker import Report, Signals, StageHealth, work

STAGE = "publish"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """When new weights go into the engine."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    poll_s: float = 1.0
    """Seconds between two looks at the versions folder."""
    tolerance: float = 0.0
    """Mean |difference| of the probe's log-probs, engine against learner, above which the old version stays.
    0: 1e-4 where both compute in float32, else 0.05."""

    def __post_init__(self) -> None:
        above(self, 0, "poll_s")
        at_least(self, 0, "tolerance")

    def tolerance_for(self, *dtypes: str) -> float:
        """The tolerance where engine and learner compute in these torch dtypes."""
        return self.tolerance or (1e-4 if set(dtypes) == {"float32"} else 0.05)


class Checkpoints(Protocol):
    """The versions on disk."""

    def numbers(self) -> list[int]:
        """Every committed version's number."""

    def has_weights(self, number: int) -> bool:
        """Whether its weights are still there."""

    def get(self, number: int) -> Version | None:
        """What its manifest says."""

    def weights(self, number: int) -> Path:
        """Its Hugging Face folder."""


class Publisher:
    """Brings the engine to the newest version that it agrees with the learner on.

    `published` records a version that is served; it may raise StoreError while the store does not know it.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        checkpoints: Checkpoints,
        published: Callable[[int], Awaitable[object]],
        tolerance: float,
    ) -> None:
        self._engine = engine
        self._checkpoints = checkpoints
        self._published = published
        self._tolerance = tolerance
        self._refused: set[int] = set()
        self._unrecorded: int | None = None

    async def run(self, signals: Signals, *, report: Report, poll_s: float, back_off: BackOff) -> None:
        """Publish until told to stop. A refused version is the stage's health until another is served."""
        health = StageHealth(STAGE, report)
        await work(
            self.step,
            signals=signals,
            health=health,
            poll_s=poll_s,
            back_off=back_off,
            lasting=(ProbeMismatch,),
        )

    async def step(self) -> bool:
        """Serve the newest version that can be; False where that is the one served.

        Raises what was wrong with a newer one, after older ones (none that was taken back) were tried in its
        place. A version that failed its probe is not tried again; one that could not be loaded is.
        """
        await self._record()
        newer = await asyncio.to_thread(
            candidates, self._checkpoints, self._engine.version, frozenset(self._refused)
        )
        trouble: AfterwitError | None = None
        for version in newer:
            try:
                await self._publish(version)
            except AfterwitError as error:
                trouble = trouble or error
            else:
                break
        await self._record()
        if trouble:
            raise trouble
        return bool(newer)

    async def _publish(self, version: Version) -> None:
        await self._engine.stage(version.number, self._checkpoints.weights(version.number))
        try:
            check_probe(version, await self._engine.probe(version.probe.ids), self._tolerance)
        except ProbeMismatch:
            self._refused.add(version.number)
            await self._engine.discard()
            raise
        except AfterwitError:
            await self._engine.discard()
            raise
        await self._engine.promote()
        self._unrecorded = version.number

    async def _record(self) -> None:
        if self._unrecorded is not None:
            await self._published(self._unrecorded)
            self._unrecorded = None


def candidates(checkpoints: Checkpoints, served: int, refused: frozenset[int]) -> list[Version]:
    """Versions above the served one that may be served in its place, newest first."""
    numbers = sorted((number for number in checkpoints.numbers() if number > served), reverse=True)
    known = [
        version
        for number in numbers
        if checkpoints.has_weights(number) and (version := checkpoints.get(number))
    ]
    taken_back = {number for version in known for number in version.reverts}
    return [version for version in known if version.number not in refused | taken_back]


def check_probe(version: Version, served: Sequence[float], tolerance: float) -> None:
    """ProbeMismatch unless the engine's log-probs are the learner's, up to the mean |difference|."""
    pairs = list(zip(version.probe.logprobs, served, strict=True))
    off = sum(abs(learner - engine) for learner, engine in pairs) / len(pairs)
    if not off <= tolerance:
        raise ProbeMismatch(
            f"version {version.number} was not published: the engine's log-probs differ from the learner's "
            f"by {off:.2g} on average, at most {tolerance:.2g} would do; the version before it stays"
        )
