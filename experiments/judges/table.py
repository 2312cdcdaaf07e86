"""The finished runs as tables: means over seeds, a table for each world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from afterwit.demo.people import MEASURE
from experiments.judges.runs import CASES, MOMENTS, Case, name_of
from experiments.simulation.plan import RunResult

TABLES: Mapping[str, str] = {"judges": "wrong answers", "people": "people", "hints": "changed"}
"""The header of each table's first column."""


def tables(results: Sequence[RunResult], name: str) -> str:
    """Both worlds' tables of this name."""
    return "\n".join(_table(results, name, world) for world in MOMENTS[name])


def _table(results: Sequence[RunResult], name: str, world: str) -> str:
    measured = MOMENTS[name][world]
    titles = [f"{world}: {TABLES[name]}", *(f"preference @{at}" for at in measured)]
    titles += [f"success @{measured[-1]}", "alarms, holds", "seeds"]
    if name == "judges":
        titles.append("wrong, as votes tell")
    rows = [titles, ["---"] * len(titles)]
    rows += [row for case in CASES if case.table == name for row in _row(results, case, world)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(results: Sequence[RunResult], case: Case, world: str) -> Iterator[list[str]]:
    """Nothing for a case that was not played."""
    runs = _runs(results, case, world)
    if not runs:
        return
    points = [[run.at(at, MEASURE) for run in runs] for at in MOMENTS[case.table][world]]
    row = [
        case.name,
        *(f"{fmean(point.preference for point in each):.2f}" for each in points),
        f"{fmean(point.task_success for point in points[-1]):.2f}",
        f"{sum(run.alarms for run in runs)}, {sum(run.holds for run in runs)}",
        str(len(runs)),
    ]
    if case.table == "judges":
        row.append(f"{fmean(run.judge_wrong or 0.0 for run in runs):.0%}")
    yield row


def _runs(results: Sequence[RunResult], case: Case, world: str) -> list[RunResult]:
    """A case's runs by their seeds, of each the newest."""
    of_case = [run for run in results if run.name == name_of(case) and run.facts["world"] == world]
    by_seed = {run.facts["seed"]: run for run in of_case}
    return [by_seed[seed] for seed in sorted(by_seed)]
