"""The system of one run, in a folder of its own, and the people who use it."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import cast

from afterwit.apps.build import judge_prompts, store_of_model, trainer_of, versions_of
from afterwit.apps.config import Settings
from afterwit.apps.demo.judge import Judge
from afterwit.apps.demo.people import TEMPERATURE, Interaction, Score, Trial, interaction, trial
from afterwit.apps.demo.world import Split, Task, World
from afterwit.core.rollout import Rollout, pairs
from afterwit.core.turn import Kind
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.stages.judge.clients import EngineJudge
from afterwit.stages.learn import Learn
from afterwit.stages.publish import Publisher
from afterwit.wire.model_text.render import Renderer
from afterwit.wire.openai_chat import parse_messages
from experiments.simulation.client import Client, Conversation
from experiments.simulation.judging import Answered, Judging
from experiments.simulation.learning import OWNER, Learning, StepClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """People, and the system that learns from them."""

    settings: Settings
    world: World
    seed: int
    client: Client
    learning: Learning

    @property
    def updates(self) -> int:
        """Versions that were learned so far."""
        return max(self.learning.checkpoints.numbers())

    async def measure(self, tasks: Sequence[Task]) -> Score:
        """The policy on these tasks, nobody watching; the same draws at every measurement."""
        trials = [
            Conversation[Trial](
                script=trial(self.world, task),
                session=f"trial {self.seed} {number}",
                kind=Kind.SIDE,
                temperature=TEMPERATURE,
            )
            for number, task in enumerate(tasks)
        ]
        await self.client.hold(trials, now=0.0)
        return Score(trials=tuple(cast(Trial, one.result) for one in trials))

    async def interact(self, number: int, split: Split, rng: Random) -> Interaction:
        """One person's task, and everything that is learned from it."""
        forced = self.settings.gateway.force_temperature
        one = Conversation[Interaction](
            script=interaction(self.world, self.world.task(split, rng), split, rng),
            session=f"person {self.seed} {number}",
            kind=Kind.MAIN,
            temperature=TEMPERATURE if forced is None else forced,
        )
        await self.client.hold([one], now=float(number))
        await self.learning.teach(_answered(one))
        return cast(Interaction, one.result)


def _answered(one: Conversation[Interaction]) -> list[Answered]:
    """The conversation's turns with everything that followed each before the next."""
    assert one.result is not None
    messages = parse_messages(list(one.result.messages), len(one.result.messages))
    said = [place for place, message in enumerate(messages) if message.role == "assistant"]
    rollout = Rollout(messages=messages, turns=dict(zip(said, one.turns, strict=False)))
    return [(turn, following) for turn, following in pairs(rollout) if following is not None]


@asynccontextmanager
async def simulation(
    settings: Settings, world: World, *, seed: int, program: Judge | None, publish_every: int = 1
) -> AsyncIterator[Simulation]:
    """Everything that a run needs, in a folder of its own that is gone afterwards."""
    folder, clock, judge = Path(settings.model or ""), StepClock(), settings.judge
    renderer, engine = Renderer.load(folder), EmbeddedEngine.load(folder, settings.engine)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="afterwit-simulation-")))
        store = store_of_model(settings, home, folder)
        stack.callback(store.close)
        trainer, checkpoints = trainer_of(settings, home, folder), versions_of(home, folder)
        stack.enter_context(checkpoints.learning())
        trainer.begin(now=clock())
        learning = Learning(
            store=store,
            judging=Judging(
                engine=engine,
                judge=EngineJudge(engine, renderer, weights=judge.weights, thinking=judge.thinking),
                program=program,
                prompts=judge_prompts(judge),
                rules=judge.rules(settings.objective.reads),
                temperature=judge.temperature,
            ),
            learn=Learn(store, trainer, owner=OWNER, now=clock),
            checkpoints=checkpoints,
            publisher=Publisher(
                engine=engine,
                checkpoints=checkpoints,
                published=_unrecorded,
                tolerance=settings.publish.tolerance_for(engine.facts.dtype, settings.learner.dtype),
            ),
            publish_every=publish_every,
            clock=clock,
        )
        try:
            client = Client(engine=engine, renderer=renderer, world=world)
            yield Simulation(settings=settings, world=world, seed=seed, client=client, learning=learning)
        finally:
            await engine.close()


async def _unrecorded(number: int) -> None:
    """Nobody asks which version is served."""
