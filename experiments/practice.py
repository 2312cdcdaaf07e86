"""`python -m experiments.practice`: what people's corrections teach by `serve`'s settings.

The model is its own judge. Each world is played with practice, without it, and with a judge whose answers are
wrong in a quarter. Next to them stands an agent that keeps every rule from the moment a person has named it:
a rule that no one has broken yet cannot be known.

Finished runs are kept in DATA, a JSON line each, and are the table of PAGE.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Console

from afterwit.demo.people import MEASURE, PEOPLE, SEED, held_out
from afterwit.demo.worlds import WORLDS
from experiments.simulation.plan import Plan, RunResult
from experiments.simulation.processes import KeptRuns, play_all
from experiments.simulation.progress import Bar
from experiments.study.page import filled

MARK = "practice"
SEEDS = (40, 41, 42, 43)
"""Of people, tasks and sampling. Their figures chose no rule or setting."""
MEASURED = (0, 4, 8, 12)
LONG = (*MEASURED, 60)
TASKS = 60
"""Held-out tasks of a measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """How a world is played."""

    name: str
    settings: tuple[str, ...] = ()
    wrong: float = 0.0
    measured: tuple[int, ...] = MEASURED
    """After how many tasks; the last one ends the run."""


CASES = (
    Case(name="with practice", measured=LONG),
    Case(name="without", settings=("practice.enabled=false",)),
    Case(name="with practice, judge wrong in a quarter", wrong=0.25),
)


def plan(world: str, case: Case, seed: int) -> Plan:
    return Plan(
        world=world,
        seed=seed,
        name=case.name,
        judge="model",
        settings=case.settings,
        interactions=case.measured[-1],
        measured=case.measured,
        tasks=TASKS,
        guarded=True,
        wrong=case.wrong,
        real_defaults=True,
    )


def named(world: str, seeds: Iterable[int], *, together: bool) -> list[float]:
    """The mean share of held-out tasks all of whose rules people have named, at each moment of `MEASURED`.

    `together`: a person names every rule of a task at once; else the first that is new.
    """
    shares: list[list[float]] = [[] for _ in MEASURED]
    for seed in seeds:
        rng, rules = Random(seed), set[str]()
        tasks = held_out(WORLDS[world], MEASURE, TASKS, SEED + seed)
        for number in range(MEASURED[-1] + 1):
            if number:
                new = [rule for rule in WORLDS[world].task(PEOPLE, rng).rules if rule not in rules]
                rules.update(new if together else new[:1])
            if number in MEASURED:
                known = fmean(rules.issuperset(task.rules) for task in tasks)
                shares[MEASURED.index(number)].append(known)
    return [fmean(each) for each in shares]


def table(results: Sequence[RunResult]) -> str:
    """A row for each world and case: preference / success at each moment, means of the seeds."""
    titles = ["world", "seeds", *("start" if at == 0 else str(at) for at in LONG), "least success"]
    rows = [titles, ["---"] * len(titles)]
    for world in WORLDS:
        for case in CASES:
            runs = [run for run in results if (run.facts["world"], run.name) == (world, case.name)]
            if not runs:
                continue
            points = [[run.at(at, MEASURE) for run in runs] for at in case.measured]
            cells = [
                f"{fmean(p.preference for p in each):.2f} / {fmean(p.task_success for p in each):.2f}"
                for each in points
            ]
            cells += [""] * (len(LONG) - len(cells))
            least = min(point.task_success for each in points for point in each)
            seeds = ", ".join(str(seed) for seed in sorted(run.facts["seed"] for run in runs))
            rows.append([f"{world}, {case.name}", seeds, *cells, f"{least:.2f}"])
    low, high = (named("tools", SEEDS, together=together) for together in (False, True))
    known = [f"{one:.2f} to {other:.2f}" for one, other in zip(low, high, strict=True)]
    rows.append(["tools, every rule kept once it was named", ", ".join(map(str, SEEDS)), *known, "", ""])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main(
    jobs: Annotated[int, typer.Option(help="Processes, one thread each.", min=1)] = 1,
    data: Annotated[Path, typer.Option(help="The finished runs.")] = Path("docs/data/practice.jsonl"),
    page: Annotated[Path, typer.Option(help="The page with the table.")] = Path("docs/demo.md"),
) -> None:
    """Play what is missing, and write the table."""
    plans = [plan(world, case, seed) for world in WORLDS for case in CASES for seed in SEEDS]
    with Bar(Console()) as bar:
        found = table(play_all(plans, KeptRuns(data), jobs=jobs, observer=bar))
    print(found)
    if page.exists():
        page.write_text(filled(page.read_text(encoding="utf-8"), MARK, found), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
