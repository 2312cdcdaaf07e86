"""The live system: the whole loop in this process, and a run of the demo on it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from anyio.from_thread import start_blocking_portal
from openai import OpenAI

from afterwit.config import Settings
from afterwit.demo import people
from afterwit.demo.judge import Judge
from afterwit.demo.people import PEOPLE, Interaction, Responder, Score, Setting
from afterwit.demo.settings import changed
from afterwit.demo.world import Task, World
from afterwit.engines.port import Engine
from afterwit.engines.server.process import EngineProcess
from afterwit.engines.server.settings import ServerSettings
from afterwit.errors import SettingError
from afterwit.home.home import CONFIG, config_text
from afterwit.judging.ability import Progress, silent
from afterwit.judging.voting import Answer
from afterwit.lifecycle import State
from afterwit.printing.terminal import Terminal, Working, end_at_signals, working
from afterwit.promotion.episodes import Event
from afterwit.running.serve import Runtime
from afterwit.running.up import engine_process, guarded
from afterwit.store import Store
from afterwit.turn import Message

LEARN_S = 120.0
"""Longest wait for learning after a person's task. Long, so that a slow machine learns the same."""
WAIT_S = 600.0
"""Longest wait of a person for an answer."""
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
    """A run of the demo on a live system."""

    system: LiveSystem
    world: World
    held_out: Sequence[Task]
    seed: int
    measured: Sequence[int]
    """Interactions after which the policy is measured, in addition to the start and the end."""
    began: float
    step: Progress = silent
    interactions: list[Interaction] = field(default_factory=list)
    points: list[Measurement] = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    decisions: list[tuple[int, Event]] = field(default_factory=list)
    """Decisions of promotion, each with the number of interactions before it."""

    def play(self, interactions: int) -> Iterator[Interaction | Measurement]:
        """Have people give this many tasks. Measure at the start, along the way and at the end.

        Each task is learned from before the next person comes.
        """
        rng = Random(self.seed)
        yield self._measure()
        for number in range(1, interactions + 1):
            self.step("people's tasks", number - 1, interactions)
            answer = self.system.agent(self.world.setting, f"person-{self.seed}-{number}")
            task = self.world.task(PEOPLE, rng)
            one = people.play(answer, people.interaction(self.world, task, PEOPLE, rng))
            self.interactions.append(one)
            self.system.wait_until_learned(time.monotonic() + LEARN_S)
            events = self.system.store(lambda store: store.events())
            self.decisions += [(number, event) for event in events[len(self.decisions) :]]
            yield one
            if number in self.measured or number == interactions:
                yield self._measure()

    def _measure(self) -> Measurement:
        done = partial(self.step, "measuring on held-out tasks, without hints")
        done(0, len(self.held_out))
        score = people.evaluate(self.system.agent(self.world.setting), self.world, self.held_out, done)
        point = Measurement(
            interactions=len(self.interactions),
            seconds=round(time.monotonic() - self.began, 1),
            preference=score.preference,
            task_success=score.task_success,
        )
        self.points.append(point)
        self.scores.append(score)
        return point


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

    api: OpenAI
    runtime: Runtime
    settings: Settings
    events: asyncio.AbstractEventLoop

    def agent(self, setting: Setting, session: str | None = None) -> Responder:
        """A client of its gateway; without a session its traffic is side traffic, which never trains."""
        headers = people.SIDE if session is None else {"X-Session-Id": session}
        return people.agent(self.api, setting, headers)

    def store(self, work: Callable[[Store], T]) -> T:
        """The result of `work`, run by the store's own thread."""
        return self.wait(self.runtime.store.call(work))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, run by the loop of the system."""
        return asyncio.run_coroutine_threadsafe(work, self.events).result()

    @property
    def engine(self) -> Engine:
        assert self.runtime.engine is not None
        return self.runtime.engine

    def version(self) -> int:
        return self.engine.version

    def wait_until_learned(self, until: float, step: Progress = silent, *, every_s: float = 0.02) -> bool:
        """Wait until all turns so far are judged, trained and published; whether they are by `until`."""
        batch = self.settings.learner.batch
        while time.monotonic() < until:
            states, versions, stages = self.store(
                lambda store: (store.counts().states, store.versions(), store.statuses())
            )
            unjudged, judged = states.get(State.ANSWERED, 0), states.get(State.JUDGED, 0)
            newest = max((row.number for row in versions), default=0)
            if not unjudged and judged < batch and self.version() >= newest:
                return True
            whole = sum(states.values())
            troubles = [f": {stage.name}: {stage.message}" for stage in stages if not stage.ok]
            step("".join(["judging and learning", *troubles]), whole - unjudged - judged, whole)
            time.sleep(every_s)
        return False


@contextmanager
def live(
    settings: Settings, home: Path, *, rules: Judge | None, server: EngineProcess | None = None
) -> Iterator[LiveSystem]:
    """Run the whole loop, in a thread of its own. `rules` replace the judge that the settings name.

    `server` is started before the loop and stopped after it.
    """
    runtime = Runtime(settings, home, judge=Rules(rules) if rules else None)

    @asynccontextmanager
    async def running() -> AsyncIterator[asyncio.AbstractEventLoop]:
        async with AsyncExitStack() as stack:
            if server is not None and isinstance(settings.engine, ServerSettings):
                stack.push_async_callback(server.stop)
                await server.start(within_s=settings.engine.start_s, progress=lambda words: None)
            await stack.enter_async_context(runtime)
            yield asyncio.get_running_loop()

    with (
        start_blocking_portal(backend_options={"use_uvloop": True}) as portal,
        portal.wrap_async_context_manager(running()) as events,
        OpenAI(base_url=runtime.url, api_key="live", timeout=WAIT_S, max_retries=0) as api,
    ):
        yield LiveSystem(api=api, runtime=runtime, settings=settings, events=events)


def refuse_file(out: Path) -> None:
    """SettingError if the folder of a report cannot be made, because a file has its place."""
    for place in (out, *out.absolute().parents):
        if place.exists() and not place.is_dir():
            raise SettingError(f"{place} is not a folder: choose another --out")


@contextmanager
def live_home(
    settings: Settings,
    home: Path,
    *,
    rules: Judge | None,
    own_server: bool,
    stopped: str,
) -> Iterator[tuple[LiveSystem, Working]]:
    """`live` for a command, and the line that shows its steps. The home's config.toml gets the settings.

    `own_server`: a server that the settings name is started. A signal ends everything with `stopped`.
    """
    console = Terminal()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    (home / CONFIG).write_text(config_text(changed(settings)), encoding="utf-8")
    server = None
    if own_server and isinstance(settings.engine, ServerSettings):
        console.say(f"starting a {settings.engine.kind} server; its log is in {home}")
        settings = guarded(settings, home, os.environ)
        server = engine_process(settings, home)
    end_at_signals(stopped, () if server is None else (server,))
    with (
        working("starting the gateway, the engine, the judge and the learner") as line,
        live(settings, home, rules=rules, server=server) as system,
    ):
        console.say(f"watch it at {system.runtime.page}")
        yield system, line
