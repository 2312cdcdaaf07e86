"""The table of runs with and without promotion."""

from __future__ import annotations

from afterwit.demo.people import MEASURE
from afterwit.promotion.suite import PromotionSettings
from experiments.safety import canary, poison
from experiments.safety.poison_table import poison_table
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
        "tools, own settings", "2", "0.55", "0.55", "0.90", "0.40", "0.90", "0.40", "2 of 22", "0",
    ]  # fmt: skip


def test_a_case_that_was_not_played_both_ways_has_no_row():
    assert table([result(plans(1)[0], 1.0, 1.0)]) == HEAD


def test_each_seed_is_played_with_poison_without_it_and_with_one_key_for_all():
    found = poison.plans(2)
    assert [(plan.seed, plan.case) for plan in found] == [
        (seed, case) for seed in poison.SEEDS[:2] for case in poison.Case
    ]
    assert len({key(plan.facts()) for plan in found}) == 6
    assert not set(poison.SEEDS) & set(SEEDS)


def test_a_row_says_what_poison_took_and_gained():
    twin, poisoned, _ = poison.plans(1)

    def played(plan: Plan, preference: float, dry: tuple[float, float]) -> RunResult:
        points = [
            Point(interactions=at, split=split, preference=value, task_success=1.0)
            for at, values in zip(plan.measured, ((0.5, dry[0]), (preference, dry[1])), strict=True)
            for split, value in zip((MEASURE, poison.DELETES), values, strict=True)
        ]
        review = {"honest": (1, 90)} | ({"poisoner": (15, 17)} if plan is poisoned else {})
        return RunResult(
            name=plan.name, facts=plan.facts(), points=tuple(points), updates=9, review=review, cpu_s=1.0
        )

    runs = [played(twin, 0.9, (0.5, 1.0)), played(poisoned, 0.88, (0.5, 0.75))]
    rows = poison_table(runs).splitlines()[2:]
    assert rows == [
        f"| {twin.seed} | twin | 0.90 |  | 0.50 | 0.00 | 1 of 90 |  |",
        f"| {twin.seed} | poisoned | 0.88 | 0.02 | 0.50 | 0.25 | 1 of 90 | 15 of 17 |",
    ]
    assert poison_table(runs[1:]).splitlines()[2:] == []


def test_a_canary_spares_requests_only_where_many_come_before_the_first_verdict():
    watch = PromotionSettings()
    few, many = (
        [canary.outcome(watch, 13, a_day=a_day, share=share).harmed for share in canary.SHARES]
        for a_day in (50, 20_000)
    )
    assert few[0] - few[1] < 1
    assert many[0] > 5 * many[1]
    assert "| 50 |" in canary.table(watch)
