"""The system of one run, in a folder of its own, and the people who use it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TypeVar

from afterwit.build import publishers_of, shown_lessons, store_of_model, trainer_of, versions_of
from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.versions import Versions
from afterwit.config import Settings
from afterwit.demo.judge import Judge as RuleJudge
from afterwit.demo.live import Rules
from afterwit.demo.people import SIDE, Interaction, Score, Script, interaction, trial
from afterwit.demo.words import Split
from afterwit.demo.world import Task, World
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.gateway.app import GatewayApp
from afterwit.gateway.auth import hash_key
from afterwit.gateway.context import Gateway
from afterwit.judging.engine_judge import EngineJudge
from afterwit.judging.stage import Clock, Judge
from afterwit.judging.verdicts import JudgeClient
from afterwit.learning.stage import Learn
from afterwit.practice.stage import Practice, with_lessons
from afterwit.promotion.watch import WatchOver
from afterwit.publish.publisher import Publisher
from afterwit.store import Store
from experiments.simulation.client import Client, Conversation, named
from experiments.simulation.lockstep import InlineExecutor, InlineStore, LockstepEngine
from experiments.simulation.manners import Manner
from experiments.simulation.weak_judge import weakened

T = TypeVar("T")
OWNER = "simulation"
MEASURER = "measurer"
"""Has the key with which the policy is measured."""
TICK_S = 0.001


@dataclass(slots=True)
class StepClock:
    """A clock that moves on by a millisecond whenever it is read: time is an order here, nothing waits."""

    now: float = 0.0

    def __call__(self) -> float:
        self.now += TICK_S
        return self.now


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """People, and the stages that serve them and learn from them, each called when there is work for it."""

    world: World
    seed: int
    client: Client
    store: Store
    judge: Judge
    learn: Learn
    practice: Practice | None
    publisher: Publisher
    versions: Versions
    engine: LockstepEngine
    keyless: bool
    publish_every: int
    """The engine takes each version whose number this divides: a larger number makes turns staler."""

    @property
    def updates(self) -> int:
        """Versions that were learned so far."""
        return self.versions.newest()

    async def measure(self, tasks: Sequence[Task]) -> Score:
        """The policy on these tasks, in auxiliary requests; the same draws at every measurement."""
        headers = SIDE if self.keyless else SIDE | named(MEASURER)
        trials = [
            Conversation(script=trial(self.world, task), name=f"trial {self.seed} {number}", headers=headers)
            for number, task in enumerate(tasks)
        ]
        return Score(trials=tuple(await self.client.play(trials)))

    async def interact(
        self,
        number: int,
        split: Split,
        rng: Random,
        manner: Manner = Manner.FULL,
        *,
        source: str | None = None,
    ) -> Interaction:
        """One person's task, and everything that is learned from it; `source` names the key."""
        task = self.world.task(split, rng)
        script = interaction(self.world, task, split, rng, manner.react, watched=manner.watches)
        played = await self.talk(f"person-{self.seed}-{number}", script, source=source)
        await self.learn_all()
        return played

    async def talk(self, name: str, script: Script[T], *, source: str | None = None) -> T:
        """One conversation, which is a session of this name."""
        headers = {"X-Session-Id": name} | ({} if source is None else named(source))
        (played,) = await self.client.play([Conversation(script=script, name=name, headers=headers)])
        return played

    async def learn_all(self) -> None:
        """Judge, learn and publish whatever there is, and practise until nothing is left to practise."""
        while await self.judge.step():
            pass
        practises = True
        while practises:
            while self.learn.step():
                if self.updates % self.publish_every == 0:
                    await self.publisher.step()
            practises = self.practice is not None and await self.practice.step()


@asynccontextmanager
async def simulation(
    settings: Settings,
    world: World,
    *,
    seed: int,
    program: RuleJudge | None,
    publish_every: int = 1,
    wrong: float = 0.0,
    sources: Sequence[str] = (),
) -> AsyncIterator[Simulation]:
    """Everything that a run needs, in a folder of its own that is gone afterwards.

    `program` judges in place of the model that the settings name; `wrong` is the share of its answers, or of
    the model's, that are made wrong. `sources` have a key each; without any, all are one.
    """
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    assert isinstance(settings.engine, EmbeddedSettings), "a run in lockstep needs the engine in this process"
    folder, now, draws = Path(settings.model or ""), StepClock(), Random(seed)
    renderer = Renderer.load(folder)
    engine = LockstepEngine.load(folder, replace(settings.engine, prefix_cache_gib=0))
    with _home(settings, folder, sources, now) as (home, store):
        inline, versions = InlineStore(store), versions_of(home, folder)
        trainer = trainer_of(settings, home, folder)
        client = _judge_client(settings, engine, renderer, program)
        gateway = Gateway(
            engine=engine,
            renderer=renderer,
            store=inline,
            settings=settings.gateway,
            lessons=shown_lessons(settings, renderer),
            now=now,
            entropy=draws.randbytes,
        )
        with versions.learning():
            trainer.begin(now=now())
            try:
                yield Simulation(
                    world=world,
                    seed=seed,
                    client=Client(app=GatewayApp(gateway), world=world),
                    store=store,
                    judge=_judge(settings, inline, weakened(client, world, wrong), now),
                    practice=_practice(settings, inline, engine, renderer, now, draws),
                    learn=Learn(store, trainer, owner=OWNER, promotion=settings.promotion, now=now),
                    publisher=publishers_of(settings, engine, versions, inline)[0],
                    versions=versions,
                    engine=engine,
                    keyless=not sources,
                    publish_every=publish_every,
                )
            finally:
                await engine.close()


@contextmanager
def _home(
    settings: Settings, folder: Path, sources: Sequence[str], now: StepClock
) -> Iterator[tuple[Path, Store]]:
    """A home that is gone afterwards, and its store with a key for each source."""
    with tempfile.TemporaryDirectory(prefix="afterwit-simulation-") as name:
        with closing(store_of_model(settings, Path(name), folder)) as store:
            for each in (*sources, MEASURER) if sources else ():
                store.add_key(each, ("chat", "teach", "reward"), hash_key(each), now=now())
            yield Path(name), store


def _judge_client(
    settings: Settings, engine: LockstepEngine, renderer: Renderer, program: RuleJudge | None
) -> JudgeClient:
    if program is not None:
        return Rules(program)
    return EngineJudge(engine, renderer, weights=settings.judge.weights, thinking=settings.judge.thinking)


def _judge(settings: Settings, store: InlineStore, client: JudgeClient, now: StepClock) -> Judge:
    return Judge(
        store=store,
        client=client,
        settings=settings.judge,
        reads=settings.objective.reads,
        owner=OWNER,
        clock=Clock(now=now, sleep=asyncio.sleep, random=lambda: 0.5),
        after=with_lessons(WatchOver(settings.promotion).judged, settings.learner.teaching),
    )


def _practice(
    settings: Settings,
    store: InlineStore,
    engine: LockstepEngine,
    renderer: Renderer,
    now: StepClock,
    draws: Random,
) -> Practice | None:
    """As `serve` practises."""
    if not settings.practice.enabled:
        return None
    return Practice(
        store=store,
        engine=engine,
        renderer=renderer,
        settings=settings.practice,
        learner=settings.learner,
        placement=settings.judge.placement,
        now=now,
        entropy=draws.randbytes,
    )
