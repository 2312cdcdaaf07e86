"""The finished runs as tables: means over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from afterwit.apps.demo.people import MEASURE
from experiments.judges.runs import CASES, SEEDS, Case, plans_of
from experiments.simulation.plan import Plan, RunResult, key

HEADS = {
    "judges": "| world, wrong answers | {} | success | least preference | alarms | as votes tell |\n",
    "people": "| world, people | {} | success | least preference | alarms |\n",
    "hints": "| world, changed | {} | success | least preference | alarms |\n",
}
COLUMNS = 3
"""Measurements after the start."""


def table(kept: Mapping[str, RunResult], name: str) -> str:
    """A row for each world and case of the table whose runs are there, of as many seeds as are."""
    head = HEADS[name].format(
        " | ".join(f"preference, {at}" for at in ("early", "then", "end")[-_width(name) :])
    )
    rule = "| --- " * (head.count("|") - 1) + "|\n"
    cases = [case for case in CASES if case.table == name]
    rows = [
        _row(plan, case, runs)
        for world in ("tools", "chat")
        for case in cases
        for plan in plans_of(case)
        if plan.world == world and (runs := _runs(kept, plan))
    ]
    return head + rule + "".join(rows)


def _width(name: str) -> int:
    return 2 if name == "hints" else COLUMNS


def _runs(kept: Mapping[str, RunResult], plan: Plan) -> list[RunResult]:
    wanted = [key(replace(plan, seed=seed).facts()) for seed in SEEDS]
    return [kept[name] for name in wanted if name in kept]


def _row(plan: Plan, case: Case, runs: Sequence[RunResult]) -> str:
    points = [[run.at(at, MEASURE) for run in runs] for at in plan.measured[1:]]
    last = points[-1]
    cells = [
        f"{plan.world}, {case.name}",
        *(
            f"{fmean(point.preference for point in each):.2f} @{at}"
            for at, each in zip(plan.measured[1:], points, strict=True)
        ),
        f"{fmean(point.task_success for point in last):.2f}",
        f"{min(point.preference for point in last):.2f}",
        str(sum(run.alarms for run in runs)),
    ]
    if case.table == "judges":
        cells.append(f"{fmean(run.judge_wrong or 0.0 for run in runs):.0%}")
    return "| " + " | ".join(cells) + " |\n"
