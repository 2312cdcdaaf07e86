"""Measure the hint-less policy on held-out tasks, over the same endpoint, as side traffic that never
trains.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from statistics import fmean

from afterwit.apps.demo.people.agent import Responder, Script, opening, play, work
from afterwit.apps.demo.world import Message, Split, Task, World

PEOPLE: Split = "dev"
"""The part of the wordings that people speak."""
MEASURE: Split = "fresh"
"""That of the tasks that measure. Neither is in the model's pretraining."""
SEED = 70_000
"""Of the tasks that measure a run with the seed 0: far from all seeds of people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One held-out task as the policy did it with nobody watching."""

    task: Task
    messages: tuple[Message, ...]
    broken: tuple[str, ...]
    """The rules that it broke."""
    kept: bool
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Preference: the share of tasks that kept every rule that applies.

    Task success: the share whose check passes.
    """

    trials: tuple[Trial, ...]

    @property
    def preference(self) -> float:
        return fmean(trial.kept for trial in self.trials)

    @property
    def task_success(self) -> float:
        return fmean(trial.passed for trial in self.trials)


def held_out(world: World, split: Split, number: int, seed: int) -> list[Task]:
    """The tasks of an evaluation, the same ones for the same seed."""
    rng = Random(seed)
    return [world.task(split, rng) for _ in range(number)]


def evaluate(agent: Responder, world: World, tasks: Sequence[Task], at_once: int = 16) -> Score:
    """Let the agent do every task; its headers must mark the traffic as side traffic."""
    with ThreadPoolExecutor(at_once) as pool:
        trials = pool.map(lambda task: play(agent, world, trial(world, task)), tasks)
        return Score(trials=tuple(trials))


def trial(world: World, task: Task) -> Script[Trial]:
    """One held-out task, nobody watching."""
    messages = opening(world, task)
    with world.start(task) as state:
        yield from work(state, messages, watched=False)
        return Trial(
            task=task,
            messages=tuple(messages),
            broken=state.broken(),
            kept=state.kept(),
            passed=state.check() is None,
        )
