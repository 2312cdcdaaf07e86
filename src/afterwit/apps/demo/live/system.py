"""The real system, run for as long as a demo lasts: its event loop in a thread of its own."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import uvloop

from afterwit.apps.config import Settings
from afterwit.apps.demo.judge import Judge
from afterwit.apps.running.engine_process import EngineProcess
from afterwit.apps.running.runtime import Runtime
from afterwit.core.judging import Answer
from afterwit.core.lifecycle import State
from afterwit.core.message import Message
from afterwit.engines.server.settings import ServerSettings
from afterwit.store import Store

T = TypeVar("T")

LEARN_S = 120.0
"""Longest wait for learning after a person's task. Long, so that a slow machine learns the same."""
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Rules:
    """A rule judge as a client of the judge stage."""

    judge: Judge

    async def ask(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, seed: int
    ) -> Answer:
        """The rules' words; the same for every seed."""
        said = self.judge([{"role": m.role, "content": m.content or ""} for m in messages])
        return Answer(words=said)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSystem:
    """A running loop, seen from outside its thread."""

    url: str
    runtime: Runtime
    settings: Settings
    events: asyncio.AbstractEventLoop

    def store(self, work: Callable[[Store], T]) -> T:
        """What `work` returns, done by the store's own thread."""
        return asyncio.run_coroutine_threadsafe(self.runtime.store.call(work), self.events).result()

    def version(self) -> int:
        """The version that is served."""
        assert self.runtime.engine is not None
        return self.runtime.engine.version

    def wait_until_learned(self) -> None:
        """Wait until everything said so far is judged, trained and published, at most `LEARN_S`."""
        until = time.monotonic() + LEARN_S
        while time.monotonic() < until and not self._learned():
            time.sleep(_LOOK_S)

    def _learned(self) -> bool:
        states, versions = self.store(lambda store: (store.counts().states, store.versions()))
        quiet = not states.get(State.ANSWERED) and states.get(State.JUDGED, 0) < self.settings.learner.batch
        return quiet and self.version() >= max((row.number for row in versions), default=0)


@contextmanager
def live(
    settings: Settings, home: Path, *, rules: Judge | None, server: EngineProcess | None = None
) -> Iterator[LiveSystem]:
    """Run the whole loop; `rules` replace the judge that the settings name.

    `server` is started before it and stopped after it.
    """
    events = uvloop.new_event_loop()
    thread = threading.Thread(target=events.run_forever, name="afterwit", daemon=True)
    thread.start()
    runtime = Runtime(settings, home, judge=Rules(rules) if rules else None)
    stack = AsyncExitStack()
    try:
        try:
            asyncio.run_coroutine_threadsafe(_start(stack, runtime, settings, server), events).result()
            assert runtime.url is not None
            yield LiveSystem(url=runtime.url, runtime=runtime, settings=settings, events=events)
        finally:
            asyncio.run_coroutine_threadsafe(stack.aclose(), events).result()
    finally:
        events.call_soon_threadsafe(events.stop)
        thread.join()
        events.close()


async def _start(
    stack: AsyncExitStack, runtime: Runtime, settings: Settings, server: EngineProcess | None
) -> None:
    if server is not None and isinstance(settings.engine, ServerSettings):
        stack.push_async_callback(server.stop)
        await server.start(within_s=settings.engine.start_s, progress=lambda words: None)
    await stack.enter_async_context(runtime)
