"""The table of runs with and without promotion."""

from __future__ import annotations

from afterwit.apps.demo.people import MEASURE
from experiments.safety.runs import CASES, SEEDS, plans
from experiments.safety.table import HEAD, table
from experiments.simulation.plan import Plan, Point, RunResult, key


def result(plan: Plan, preference: float, success: float, **decided: int) -> RunResult:
    points = tuple(
        Point(interactions=at, split=MEASURE, preference=preference, task_success=success)
        for at in plan.measured
    )
    return RunResult(name=plan.name, facts=plan.facts(), points=points, updates=10, cpu_s=1.0, **decided)


def test_each_case_is_played_guarded_and_not_on_seeds_of_its_own():
    found = plans(2)
    assert len(found) == 2 * 2 * sum(len(case.worlds) for case in CASES)
    assert {plan.seed for plan in found} == set(SEEDS[:2])
    assert len({key(plan.facts()) for plan in found}) == len(found)


def test_a_run_without_promotion_has_the_facts_of_the_studys():
    plain = next(plan for plan in plans(1) if not plan.guarded)
    settings = plain.facts()["settings"]
    assert "guarded" not in plain.facts()
    assert not any(name.startswith("promotion") or name == "judge.pay_repeats" for name in settings)
    assert plain.chosen().settings.promotion.enabled is False


def test_a_row_is_a_mean_over_the_seeds_that_were_played_both_ways():
    own = [plan for plan in plans(2) if plan.name == "own settings" and plan.world == "tools"]
    results = [
        result(plan, 0.5 + plan.seed / 100, 0.9 if plan.guarded else 0.4, holds=1 if plan.guarded else 0)
        for plan in own
    ]
    text = table(results)
    assert text.startswith(HEAD)
    (row,) = text.removeprefix(HEAD).splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == [
        "tools, own settings", "4, 5", "0.55", "0.55", "0.90", "0.40", "0.90", "0.40", "2 of 22", "0",
    ]  # fmt: skip


def test_a_case_that_was_not_played_both_ways_has_no_row():
    assert table([result(plans(1)[0], 1.0, 1.0)]) == HEAD
