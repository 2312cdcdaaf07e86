"""The tables of runs with weak judges and other people."""

from __future__ import annotations

from pathlib import Path

from afterwit.demo.people import MEASURE
from experiments.judges.runs import CASES, MOMENTS, SEEDS, plans
from experiments.judges.table import TABLES, tables
from experiments.simulation.manners import Manner
from experiments.simulation.plan import Plan, Point, RunResult, key


def result(plan: Plan, preference: float, **more: float) -> RunResult:
    points = tuple(
        Point(interactions=at, split=MEASURE, preference=preference, task_success=0.9) for at in plan.measured
    )
    return RunResult(name=plan.name, facts=plan.facts(), points=points, updates=9, cpu_s=1.0, **more)


def test_every_run_is_guarded_differs_from_the_others_and_has_a_seed_of_its_own():
    found = plans(len(SEEDS))
    assert all(plan.guarded for plan in found)
    assert len({key(plan.facts()) for plan in found}) == len(found)
    assert {plan.seed for plan in found} == set(SEEDS)
    assert {plan.people for plan in found} == set(Manner) - {Manner.CONTENT}


def test_the_plans_of_one_table_are_its_own():
    assert {plan.name.partition(":")[0] for plan in plans(1, ["people"])} == {"people"}


def test_a_row_that_another_table_played_is_found_there_and_measured_at_its_own_moments():
    (plan,) = [plan for plan in plans(1) if plan.name == "judges: 0%" and plan.world == "tools"]
    found = tables([result(plan, 0.5, judge_wrong=0.02, alarms=1)], "people")
    (row,) = [line for line in found.splitlines() if line.startswith("| full")]
    assert row == "| full | 0.50 | 0.50 | 0.90 | 1, 0 | 1 |"
    judged = tables([result(plan, 0.5, judge_wrong=0.02)], "judges")
    assert "| 0% | 0.50 | 0.50 | 0.50 | 0.90 | 0, 0 | 1 | 2% |" in judged


def test_means_are_over_seeds_and_the_newest_of_a_seed_counts():
    first, second = [plan for plan in plans(2) if plan.name == "judges: 25%" and plan.world == "chat"]
    runs = [result(first, 0.1), result(first, 0.4), result(second, 0.6)]
    (row,) = [line for line in tables(runs, "judges").splitlines() if line.startswith("| 25% |")]
    assert row.startswith("| 25% | 0.50 | 0.50 | 0.50 | 0.90 |")
    assert "| 2 |" in row


def test_what_was_not_played_has_no_row():
    assert len(tables([], "hints").splitlines()) == 2 * 2 + 1


def test_the_page_has_a_place_for_the_table_of_wrong_judges():
    page = (Path(__file__).parents[2] / "docs" / "judging.md").read_text(encoding="utf-8")
    assert "<!-- runs: weak judges, judges -->" in page
    assert MOMENTS.keys() == TABLES.keys() == {case.table for case in CASES}
