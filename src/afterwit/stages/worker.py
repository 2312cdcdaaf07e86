"""The loop that every stage shares: do what is ready, rest, back off when it fails, stop when told to."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from afterwit.core.errors import AfterwitError
from afterwit.stages.retry import BackOff

Tell = Callable[[bool, str], Awaitable[object]]
"""Is told whether a stage is well, and in a sentence how it is."""
WELL = "working"
log = logging.getLogger(__name__)


class Bell:
    """Rings for any number of listeners; each compares with the count it knew, so none misses a ring."""

    def __init__(self) -> None:
        self.rings = 0
        self._next = asyncio.Event()

    def set(self) -> None:
        """Ring. Call it on the event loop's thread."""
        self.rings += 1
        self._next.set()
        self._next = asyncio.Event()

    async def after(self, rings: int) -> None:
        """Until it has rung more often than that."""
        while self.rings <= rings:
            await self._next.wait()


class Signals:
    """What resting stages listen to."""

    def __init__(self) -> None:
        self.wake = Bell()
        """There may be work."""
        self.stop = asyncio.Event()
        """Finish the step at hand, then return."""

    async def rest(self, seconds: float, *, heard: int | None = None) -> None:
        """Until the time is over, the stage is to stop, or the bell has rung since it was `heard`."""
        listened = [self.stop.wait()] if heard is None else [self.stop.wait(), self.wake.after(heard)]
        waits = [asyncio.ensure_future(waiting) for waiting in listened]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


class Standing:
    """A stage's health, told on when it changes. Shared by the loops of one stage."""

    def __init__(self, stage: str, tell: Tell) -> None:
        self.stage = stage
        self._tell = tell
        self._told: tuple[bool, str] | None = None

    async def well(self) -> None:
        await self._say(True, WELL)

    async def ill(self, error: Exception) -> None:
        log.warning("%s: %s%s", self.stage, described(error), frames(error))
        await self._say(False, described(error))

    async def _say(self, ok: bool, sentence: str) -> None:
        if self._told == (ok, sentence):
            return
        try:
            await self._tell(ok, sentence)
        except AfterwitError as error:  # a store that takes no status either: the log has it
            log.warning("%s: its status cannot be stored: %s", self.stage, error)
        else:
            self._told = (ok, sentence)


def described(error: Exception) -> str:
    """Our own errors in their words. A foreign one by its name only: its words may quote a conversation."""
    return str(error) if isinstance(error, AfterwitError) else f"{type(error).__name__} (see the log)"


def frames(error: Exception) -> str:
    """Where a foreign error arose, for the log; nothing for ours, which say all there is."""
    return (
        "" if isinstance(error, AfterwitError) else "\n" + "".join(traceback.format_tb(error.__traceback__))
    )


async def work(
    step: Callable[[], Awaitable[bool]],
    *,
    signals: Signals,
    standing: Standing,
    poll_s: float,
    back_off: BackOff,
    lasting: tuple[type[Exception], ...] = (),
) -> None:
    """Call `step` until told to stop: at once again while it says that it did something, else after a rest.

    An exception ends the step, not the loop: it is told on, and the next step waits for the back-off. An
    error that is `lasting` stays the stage's standing until a step has done something, any other until one
    has passed.
    """
    failures = 0
    clears = True  # a first step that passes says that the stage is there
    while not signals.stop.is_set():
        heard = signals.wake.rings
        try:
            busy = await step()
        except Exception as error:  # whatever a stage runs into, the others go on and it tries again
            failures, clears = failures + 1, not isinstance(error, lasting)
            await standing.ill(error)
            await signals.rest(back_off.after(failures))
            continue
        if busy or clears:
            await standing.well()
            failures, clears = 0, False
        if not busy:
            await signals.rest(poll_s, heard=heard)


@asynccontextmanager
async def renewing(
    renew: Callable[[], Awaitable[object]],
    *,
    every_s: float,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> AsyncIterator[None]:
    """Renews a lease while the body runs. A renewal that fails is logged: the commit notices a lost lease."""

    async def keep() -> None:
        while True:
            await sleep(every_s)
            try:
                await renew()
            except AfterwitError as error:
                log.warning("a lease could not be renewed: %s", error)

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        task.cancel()
