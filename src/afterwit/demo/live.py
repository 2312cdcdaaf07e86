"""A run of the demo: people's tasks on a live system, and the policy measured in between."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop
from openai import OpenAI

from afterwit.config import Settings
from afterwit.demo.judge import Judge
from afterwit.demo.people import PEOPLE, SIDE, Agent, Interaction, Score, evaluate, interaction, play
from afterwit.demo.world import Task, World
from afterwit.engines.server.process import EngineProcess
from afterwit.engines.server.settings import ServerSettings
from afterwit.judging.voting import Answer
from afterwit.lifecycle import State
from afterwit.promotion.events import Event
from afterwit.running.serve import Runtime
from afterwit.store import Store
from afterwit.turn import Message

if TYPE_CHECKING:
    from afterwit.demo.command import Display

LEARN_S = 120.0
"""Longest wait for learning after a person's task. Long, so that a slow machine learns the same."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The policy on the held-out tasks; `seconds` since the start of the command."""

    interactions: int
    seconds: float
    preference: float
    task_success: float


@dataclass(slots=True, kw_only=True)
class Run:
    """A run on a live system."""

    system: LiveSystem
    world: World
    held_out: Sequence[Task]
    seed: int
    measured: Sequence[int]
    """Interactions after which the policy is measured, in addition to the start and the end."""
    began: float
    observer: Display
    interactions: list[Interaction] = field(default_factory=list)
    points: list[Measurement] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    decisions: list[tuple[int, Event]] = field(default_factory=list)
    """Decisions of promotion, each with the number of interactions before it."""

    def play(self, interactions: int) -> None:
        """Have people give this many tasks. Measure at the start, along the way and at the end.

        Each task is learned from before the next person comes.
        """
        rng = Random(self.seed)
        with OpenAI(base_url=self.system.url, api_key="demo", timeout=120, max_retries=0) as client:
            self._measure(client)
            for number in range(1, interactions + 1):
                agent = Agent(client=client, headers={"X-Session-Id": f"person-{self.seed}-{number}"})
                task = self.world.task(PEOPLE, rng)
                one = play(agent, self.world, interaction(self.world, task, PEOPLE, rng))
                self.interactions.append(one)
                self.system.wait_until_learned()
                events = self.system.store(lambda store: store.events())
                self.decisions += [(number, event) for event in events[len(self.decisions) :]]
                self.observer.task_done(number, one, self.system.version())
                if number in self.measured or number == interactions:
                    self._measure(client)

    def _measure(self, client: OpenAI) -> None:
        self.observer.measuring()
        score = evaluate(Agent(client=client, headers=SIDE), self.world, self.held_out)
        point = Measurement(
            interactions=len(self.interactions),
            seconds=round(time.monotonic() - self.began, 1),
            preference=score.preference,
            task_success=score.task_success,
        )
        self.points.append(point)
        self.scores.append(score)
        self.observer.measured(point, self.system.version())


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
        """The result of `work`, run by the store's own thread."""
        return self.wait(self.runtime.store.call(work))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, run by the loop of the system."""
        return asyncio.run_coroutine_threadsafe(work, self.events).result()

    def version(self) -> int:
        assert self.runtime.engine is not None
        return self.runtime.engine.version

    def wait_until_learned(self) -> None:
        """Wait until all turns so far are judged, trained and published, at most `LEARN_S`."""
        until, batch = time.monotonic() + LEARN_S, self.settings.learner.batch
        while time.monotonic() < until:
            states, versions = self.store(lambda store: (store.counts().states, store.versions()))
            quiet = not states.get(State.ANSWERED) and states.get(State.JUDGED, 0) < batch
            if quiet and self.version() >= max((row.number for row in versions), default=0):
                return
            time.sleep(0.02)


@contextmanager
def live(
    settings: Settings, home: Path, *, rules: Judge | None, server: EngineProcess | None = None
) -> Iterator[LiveSystem]:
    """Run the whole loop. `rules` replace the judge that the settings name.

    `server` is started before the loop and stopped after it.
    """
    events = uvloop.new_event_loop()
    thread = threading.Thread(target=events.run_forever, name="afterwit", daemon=True)
    thread.start()
    runtime = Runtime(settings, home, judge=Rules(rules) if rules else None)
    stack = AsyncExitStack()

    async def start() -> None:
        if server is not None and isinstance(settings.engine, ServerSettings):
            stack.push_async_callback(server.stop)
            await server.start(within_s=settings.engine.start_s, progress=lambda words: None)
        await stack.enter_async_context(runtime)

    try:
        try:
            asyncio.run_coroutine_threadsafe(start(), events).result()
            assert runtime.url is not None
            yield LiveSystem(url=runtime.url, runtime=runtime, settings=settings, events=events)
        finally:
            asyncio.run_coroutine_threadsafe(stack.aclose(), events).result()
    finally:
        events.call_soon_threadsafe(events.stop)
        thread.join()
        events.close()
