"""Many runs: finished ones are kept, a damaged line is done again."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from rich.console import Console

from experiments.simulation.plan import Plan, Point, RunResult
from experiments.simulation.processes import KeptRuns, RunFailed, play_all
from experiments.simulation.progress import Bar

PLANS = [Plan(world="tools", seed=seed, interactions=2, measured=(2,), tasks=2) for seed in (0, 1)]


@dataclass
class Seen:
    """A observer that remembers."""

    runs: list[int] = field(default_factory=list)
    interactions: int = 0
    results: list[RunResult] = field(default_factory=list)

    def began(self, runs: int, interactions: int) -> None:
        self.runs.append(runs)

    def went_on(self, interactions: int) -> None:
        self.interactions += interactions

    def ended(self, result: RunResult) -> None:
        self.results.append(result)


def _known(plan: Plan, preference: float) -> RunResult:
    point = Point(interactions=2, split="fresh", preference=preference, task_success=1.0)
    return RunResult(name="a run", facts=plan.facts(), points=(point,), updates=1, cpu_s=0.0)


def pretended(plan: Plan, told: Callable[[], object]) -> RunResult:
    """The work of the processes in place of a simulation."""
    if plan.settings:
        raise ValueError("no room in the context")
    for _ in range(plan.interactions):
        told()
    return _known(plan, 0.25)


def test_finished_runs_come_from_the_notebook_in_the_plans_order(tmp_path: Path) -> None:
    kept, seen = KeptRuns(tmp_path / "runs.jsonl"), Seen()
    for index, plan in reversed(list(enumerate(PLANS))):
        kept.add(_known(plan, index / 4))
    results = play_all(PLANS, kept, jobs=1, observer=seen)
    assert [result.points[0].preference for result in results] == [0.0, 0.25]
    assert (seen.runs, seen.results) == ([0], [])


def test_progress_counts_each_group_of_runs_from_its_start() -> None:
    printed = io.StringIO()
    with Bar(Console(file=printed, width=200)) as bar:
        for plan in PLANS:
            bar.began(1, 2)
            bar.ended(_known(plan, 0.25))
    assert printed.getvalue().count("1 of 1 runs: a run") == 2


@pytest.mark.slow  # real runs in processes of their own
def test_a_cut_off_line_is_run_again_and_a_run_that_fails_is_raised_when_the_others_are_kept(
    tmp_path: Path,
) -> None:
    kept, seen = KeptRuns(tmp_path / "runs.jsonl"), Seen()
    kept.add(_known(PLANS[0], 0.5))
    kept.path.write_text(kept.path.read_text() + _known(PLANS[1], 0.9).to_line()[:-30] + "\n")
    impossible = replace(PLANS[0], settings=("learner.max_tokens=1", "engine.context_length=2"))
    with pytest.raises(RunFailed, match=r"a run, tools, seed 0: .*context"):
        play_all([impossible, *PLANS], kept, jobs=1, observer=seen, play=pretended)
    assert (seen.runs, [result.facts["seed"] for result in seen.results]) == ([2], [1])
    preferences = {result.facts["seed"]: result.points[0].preference for result in kept.read().values()}
    assert preferences == {0: 0.5, 1: 0.25}
    assert seen.interactions == 2
