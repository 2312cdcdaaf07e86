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
from afterwit.apps.demo.agent import TEMPERATURE
from afterwit.apps.demo.evaluate import Score, Trial, trial
from afterwit.apps.demo.live import Judge
from afterwit.apps.demo.person import Interaction, interaction
from afterwit.apps.demo.world import Split, Task, World
from afterwit.core.rollout import Rollout, pairs
from afterwit.core.turn import Kind
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.stages.judge.clients import EngineJudge
from afterwit.stages.learn.stage import Learn
from afterwit.stages.publish import Publisher
from afterwit.wire.model_text.render import Renderer
from afterwit.wire.openai_chat.messages import parse_messages
from experiments.simulation.bench import Answered, Bench
from experiments.simulation.desk import Conversation, Desk
from experiments.simulation.school import OWNER, School, Ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Laboratory:
    """People, and the system that learns from them."""

    settings: Settings
    world: World
    seed: int
    desk: Desk
    school: School

    @property
    def updates(self) -> int:
        """Versions that were learned so far."""
        return max(self.school.checkpoints.numbers())

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
        await self.desk.hold(trials, now=0.0)
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
        await self.desk.hold([one], now=float(number))
        await self.school.teach(_answered(one))
        return cast(Interaction, one.result)


def _answered(one: Conversation[Interaction]) -> list[Answered]:
    """The conversation's turns with everything that followed each before the next."""
    assert one.result is not None
    messages = parse_messages(list(one.result.messages), len(one.result.messages))
    said = [place for place, message in enumerate(messages) if message.role == "assistant"]
    rollout = Rollout(messages=messages, turns=dict(zip(said, one.turns, strict=False)))
    return [(turn, following) for turn, following in pairs(rollout) if following is not None]


@asynccontextmanager
async def laboratory(
    settings: Settings, world: World, *, seed: int, program: Judge | None, publish_every: int = 1
) -> AsyncIterator[Laboratory]:
    """Everything that a run needs, in a folder of its own that is gone afterwards."""
    folder, clock, judge = Path(settings.model or ""), Ticks(), settings.judge
    renderer, engine = Renderer.load(folder), EmbeddedEngine.load(folder, settings.engine)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="afterwit-laboratory-")))
        store = store_of_model(settings, home, folder)
        stack.callback(store.close)
        trainer, checkpoints = trainer_of(settings, home, folder), versions_of(home, folder)
        stack.enter_context(checkpoints.learning())
        trainer.begin(now=clock())
        school = School(
            store=store,
            bench=Bench(
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
            desk = Desk(engine=engine, renderer=renderer, world=world)
            yield Laboratory(settings=settings, world=world, seed=seed, desk=desk, school=school)
        finally:
            await engine.close()


async def _unrecorded(number: int) -> None:
    """Nobody asks which version is served."""
