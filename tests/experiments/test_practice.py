"""The study of practice: its table, and the result of an agent that would keep every correction."""

from __future__ import annotations

from afterwit.demo.people import MEASURE
from experiments.practice import CASES, LONG, SEEDS, named, plan, table
from experiments.simulation.plan import Point, RunResult


def test_an_agent_that_keeps_what_it_was_told_gets_better_with_each_complaint() -> None:
    first, every = (named("tools", SEEDS, together=together) for together in (False, True))
    assert first[0] == every[0] == 0.0
    assert first == sorted(first)
    assert every == sorted(every)
    assert all(one <= other <= 1 for one, other in zip(first, every, strict=True))
    assert every[-1] > 0.8


def test_a_row_of_the_table_is_the_mean_of_its_seeds() -> None:
    def run(seed: int, preference: float) -> RunResult:
        points = tuple(
            Point(interactions=at, split=MEASURE, preference=preference, task_success=1 - preference)
            for at in LONG
        )
        name = CASES[0].name
        return RunResult(
            name=name, facts={"world": "chat", "seed": seed}, points=points, updates=1, cpu_s=1.0
        )

    lines = table([run(41, 0.2), run(40, 0.4)]).splitlines()
    cell = "0.30 / 0.70"
    assert lines[2] == f"| chat, with practice | 40, 41 | {' | '.join([cell] * len(LONG))} | 0.60 |"
    assert lines[3].startswith("| tools, every rule kept once it was named | 40, 41, 42, 43 | 0.00 to 0.00 |")


def test_a_plan_of_practice_differs_from_one_without() -> None:
    one, other = (plan("tools", case, 40).chosen().settings.practice.enabled for case in CASES[:2])
    assert (one, other) == (True, False)
