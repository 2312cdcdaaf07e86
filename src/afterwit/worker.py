"""The loop of every stage: work while there is work, wait, back off after errors, stop on request."""

from __future__ import annotations

import asyncio
import logging
import random
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from afterwit.errors import AfterwitError, EngineUnavailable, JudgeUnavailable

DOUBLINGS = 30

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """How long to wait after a number of failures in a row: doubling, bounded, with jitter."""

    base_s: float
    max_s: float
    random: Callable[[], float] = random.random
    """Uniform in [0, 1)."""

    def after(self, failures: int) -> float:
        """Seconds: between half and the whole of base_s * 2 ** (failures - 1), at most max_s."""
        whole = min(self.max_s, self.base_s * 2.0 ** min(failures - 1, DOUBLINGS))
        return whole * (0.5 + 0.5 * self.random())


async def retrying(
    call: Callable[[], Awaitable[T]],
    *,
    attempts: int,
    back_off: BackOff,
    sleep: Callable[[float], Awaitable[object]],
    on: type[JudgeUnavailable | EngineUnavailable] = JudgeUnavailable,
) -> T:
    """The call's result, or its error `on` after `attempts` tries. Respects a judge's Retry-After."""
    for failures in range(1, attempts):
        try:
            return await call()
        except on as error:
            pause = error.retry_after_s if isinstance(error, JudgeUnavailable) else None
            asked = min(pause or 0.0, back_off.max_s)
            await sleep(max(asked, back_off.after(failures)))
    return await call()


Report = Callable[[bool, str], Awaitable[object]]
"""Stores a stage's health: whether it is healthy, and a sentence for people."""

WORKING = "working"

log = logging.getLogger(__name__)


class WakeSignal:
    """Wakes any number of waiters. Each compares with the count it knew, so none misses a signal."""

    def __init__(self) -> None:
        self.count = 0
        """How often it was set."""
        self._next = asyncio.Event()

    def set(self) -> None:
        """Wake all waiters. Call it on the event loop's thread."""
        self.count += 1
        self._next.set()
        self._next = asyncio.Event()

    async def after(self, count: int) -> None:
        """Wait until it was set more than `count` times."""
        while self.count <= count:
            await self._next.wait()


class Signals:
    """The events that an idle stage waits for."""

    def __init__(self) -> None:
        self.wake = WakeSignal()
        self.stop = asyncio.Event()
        """Finish the current step, then return."""

    async def rest(self, seconds: float, *, seen: int | None = None) -> None:
        """Wait `seconds`; return early on `stop`, and on `wake` if it was set more than `seen` times.

        Without `seen`, `wake` is ignored.
        """
        wanted = [self.stop.wait()] if seen is None else [self.stop.wait(), self.wake.after(seen)]
        waits = [asyncio.ensure_future(waiting) for waiting in wanted]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


class StageHealth:
    """A stage's health; reported when it changes. The loops of one stage share it."""

    def __init__(
        self,
        stage: str,
        report: Report,
        *,
        warning: Callable[[], str | None] = lambda: None,
        doing: Callable[[], str] = lambda: WORKING,
    ) -> None:
        """`warning` returns a problem that makes no step fail, or None; `doing` what it does without one."""
        self.stage = stage
        self._report = report
        self._warning, self._doing = warning, doing
        self._reported: tuple[bool, str] | None = None
        self._logged: str | None = None
        self._unstored: str | None = None
        """The latest errors of step and status in the log: the same one in a row is logged once."""

    async def healthy(self) -> None:
        self._logged = None
        warning = self._warning()
        await self._changed(warning is None, warning or self._doing())

    async def began(self) -> None:
        """Report what a long step does, unless the status shows a fault, which only a finished step ends."""
        if self._reported is None or self._reported[0]:
            await self.healthy()

    async def failed(self, error: Exception) -> None:
        if self._logged != (logged := described(error) + frames(error)):
            self._logged = logged
            log.warning("%s: %s", self.stage, logged)
        await self._changed(False, described(error))

    async def _changed(self, ok: bool, message: str) -> None:
        if self._reported == (ok, message):
            return
        try:
            await self._report(ok, message)
        except AfterwitError as error:  # the store is the only place for a status; the log still has it
            if self._unstored != str(error):
                self._unstored = str(error)
                log.warning("%s: its status cannot be stored: %s", self.stage, error)
        else:
            self._reported, self._unstored = (ok, message), None


def described(error: Exception) -> str:
    """Our own errors' message; only the type of a foreign error: its message may quote a conversation."""
    return str(error) if isinstance(error, AfterwitError) else f"{type(error).__name__} (see the log)"


def frames(error: Exception) -> str:
    """The traceback of a foreign error without its message, for the log; empty for our own errors."""
    return (
        "" if isinstance(error, AfterwitError) else "\n" + "".join(traceback.format_tb(error.__traceback__))
    )


async def work(
    step: Callable[[], Awaitable[bool]],
    *,
    signals: Signals,
    health: StageHealth,
    poll_s: float,
    back_off: BackOff,
    lasting: tuple[type[Exception], ...] = (),
) -> None:
    """Call `step` until `signals.stop` is set: again at once if it returned True, else after `poll_s`.

    An exception ends the step, not the loop: it becomes the stage's health, and the next step waits for the
    back-off. An error of a `lasting` type stays the stage's health until a step returns True; any other until
    a step returns.
    """
    failures = 0
    clears = True  # the first step that returns reports that the stage works
    while not signals.stop.is_set():
        seen = signals.wake.count
        try:
            busy = await step()
        except Exception as error:  # the other stages go on, and this one tries again
            failures, clears = failures + 1, not isinstance(error, lasting)
            await health.failed(error)
            await signals.rest(back_off.after(failures))
            continue
        if busy or clears:
            await health.healthy()
            failures, clears = 0, False
        if not busy:
            await signals.rest(poll_s, seen=seen)


@asynccontextmanager
async def renewing(
    renew: Callable[[], Awaitable[object]],
    *,
    every_s: float,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> AsyncIterator[None]:
    """Renew a lease while the body runs. A failed renewal is only logged: the commit notices a lost lease."""

    async def renew_on_time() -> None:
        while True:
            await sleep(every_s)
            try:
                await renew()
            except AfterwitError as error:
                log.warning("a lease could not be renewed: %s", error)

    task = asyncio.create_task(renew_on_time())
    try:
        yield
    finally:
        task.cancel()
