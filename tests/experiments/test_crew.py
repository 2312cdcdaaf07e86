"""Many runs: finished ones are kept, a damaged line is done again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from experiments.simulation.crew import Notebook, RunFailed, carry_out
from experiments.simulation.plan import Outcome, Plan, Point

PLANS = [Plan(world="tools", seed=seed, interactions=2, measured=(2,), tasks=2) for seed in (0, 1)]


@dataclass
class Seen:
    """A watcher that remembers."""

    runs: list[int] = field(default_factory=list)
    interactions: int = 0
    outcomes: list[Outcome] = field(default_factory=list)

    def began(self, runs: int, interactions: int) -> None:
        self.runs.append(runs)

    def went_on(self, interactions: int) -> None:
        self.interactions += interactions

    def ended(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


def _known(plan: Plan, preference: float) -> Outcome:
    point = Point(interactions=2, split="fresh", preference=preference, task_success=1.0)
    return Outcome(name="a run", facts=plan.facts(), points=(point,), updates=1, cpu_s=0.0)


def test_finished_runs_come_from_the_notebook_in_the_plans_order(tmp_path: Path) -> None:
    notebook, seen = Notebook(tmp_path / "runs.jsonl"), Seen()
    for place, plan in reversed(list(enumerate(PLANS))):
        notebook.add(_known(plan, place / 4))
    outcomes = carry_out(PLANS, notebook, jobs=1, watcher=seen)
    assert [outcome.points[0].preference for outcome in outcomes] == [0.0, 0.25]
    assert (seen.runs, seen.outcomes) == ([0], [])


def test_a_line_that_was_cut_off_is_run_again_in_a_process_of_its_own(tmp_path: Path) -> None:
    notebook, seen = Notebook(tmp_path / "runs.jsonl"), Seen()
    notebook.add(_known(PLANS[0], 0.5))
    notebook.path.write_text(notebook.path.read_text() + _known(PLANS[1], 0.9).to_line()[:-30] + "\n")
    outcomes = carry_out(PLANS, notebook, jobs=1, watcher=seen)
    assert outcomes[0].points[0].preference == 0.5
    assert [outcome.facts["seed"] for outcome in seen.outcomes] == [1]
    assert seen.interactions == 2
    assert len(notebook.read()) == 2


def test_a_run_that_fails_is_raised_when_the_others_are_kept(tmp_path: Path) -> None:
    notebook, seen = Notebook(tmp_path / "runs.jsonl"), Seen()
    impossible = replace(PLANS[0], settings=("learner.max_tokens=1", "engine.context_length=2"))
    with pytest.raises(RunFailed, match=r"a run, tools, seed 0: .*context"):
        carry_out([impossible, PLANS[1]], notebook, jobs=1, watcher=seen)
    assert [outcome.facts["seed"] for outcome in notebook.read().values()] == [1]
