"""A plan is carried out."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from afterwit.demo.people import PEOPLE, SEED, held_out
from afterwit.demo.words import Split
from afterwit.demo.world import Task
from afterwit.demo.worlds import WORLDS
from afterwit.judging.checks import agreement
from afterwit.promotion.episodes import EventKind
from afterwit.verdict import Question
from experiments.simulation.manners import Manner
from experiments.simulation.plan import Plan, Point, RunResult
from experiments.simulation.system import Simulation, simulation

VOTED_ON = 2000
"""The newest turns whose votes are compared."""

_untaught: dict[tuple[str, int, int, Split], Point] = {}
"""The base model's points, which do not depend on the settings: measured once a process."""


def run(plan: Plan, *, told: Callable[[], object] = lambda: None) -> RunResult:
    """Play a plan to its end, and call `told` after every interaction."""
    return asyncio.run(_run(plan, told))


async def _run(plan: Plan, told: Callable[[], object]) -> RunResult:
    chosen, world, began = plan.chosen(), WORLDS[plan.world], time.process_time()
    program = world.judge if chosen.judge == "rules" else None
    tasks = {split: held_out(world, split, plan.tasks, SEED + plan.seed) for split in plan.splits}
    points: list[Point] = []
    async with simulation(
        chosen.settings,
        world,
        seed=plan.seed,
        program=program,
        publish_every=plan.publish_every,
        wrong=plan.wrong,
    ) as system:
        rng = Random(plan.seed)
        for number in range(plan.interactions + 1):
            if number:
                manner = Manner.CONTENT if number <= plan.content else plan.people
                await system.interact(number, PEOPLE, rng, manner)
                told()
            if number in plan.measured:
                points += [await _measure(system, plan, number, split, tasks[split]) for split in plan.splits]
        updates = system.updates
        votes = agreement(
            each.values(Question.EVALUATION) for each in system.store.judged_turns(limit=VOTED_ON)
        )
        decided = Counter(event.kind for event in system.store.events())
    return RunResult(
        name=plan.name,
        facts=plan.facts(),
        points=tuple(points),
        updates=updates,
        holds=decided[EventKind.HOLD],
        alarms=decided[EventKind.ALARM],
        judge_wrong=None if votes.wrong is None else round(votes.wrong, 3),
        cpu_s=round(time.process_time() - began, 1),
    )


async def _measure(system: Simulation, plan: Plan, number: int, split: Split, tasks: Sequence[Task]) -> Point:
    known = (plan.world, plan.seed, plan.tasks, split)
    if number == 0 and known in _untaught:
        return _untaught[known]
    score = await system.measure(tasks)
    point = Point(
        interactions=number, split=split, preference=score.preference, task_success=score.task_success
    )
    if number == 0:
        _untaught[known] = point
    return point
