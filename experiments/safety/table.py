"""The finished runs as a table: means over seeds, guarded beside unguarded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from afterwit.demo.people import MEASURE
from experiments.safety.runs import CASES, Case
from experiments.simulation.plan import Point, RunResult

HEAD = (
    "| world, settings | seeds | preference | without | success | without | least success | without | holds |"
    " alarms |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
)


def table(results: Sequence[RunResult]) -> str:
    """A row for each world and case whose runs are all there."""
    rows = (row for case in CASES for world in case.worlds for row in _row(results, world, case))
    return HEAD + "".join(rows)


def _row(results: Sequence[RunResult], world: str, case: Case) -> Iterator[str]:
    guarded, bare = (_runs(results, world, case, guarded=guarded) for guarded in (True, False))
    seeds = sorted(guarded.keys() & bare.keys())
    if not seeds:
        return
    kept, left = [guarded[seed] for seed in seeds], [bare[seed] for seed in seeds]
    cells = [
        f"{world}, {case.name}",
        str(len(seeds)),
        *(f"{_mean(runs, _preference):.2f}" for runs in (kept, left)),
        *(f"{_mean(runs, _success):.2f}" for runs in (kept, left)),
        *(f"{min(map(_success, runs)):.2f}" for runs in (kept, left)),
        f"{sum(run.holds for run in kept)} of {sum(run.updates + run.holds for run in kept)}",
        str(sum(run.alarms for run in kept)),
    ]
    yield "| " + " | ".join(cells) + " |\n"


def _runs(results: Sequence[RunResult], world: str, case: Case, *, guarded: bool) -> dict[int, RunResult]:
    return {
        result.facts["seed"]: result
        for result in results
        if result.name == case.name
        and result.facts["world"] == world
        and result.facts.get("guarded", False) is guarded
    }


def _mean(runs: Sequence[RunResult], measure: Callable[[RunResult], float]) -> float:
    return fmean(map(measure, runs))


def _last(run: RunResult) -> Point:
    return run.at(run.measured[-1], MEASURE)


def _preference(run: RunResult) -> float:
    return _last(run).preference


def _success(run: RunResult) -> float:
    return _last(run).task_success
