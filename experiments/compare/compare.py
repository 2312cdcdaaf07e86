"""Objectives, or published recipes, in the same world under the same tuning."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from afterwit import recipes as published
from afterwit.demo.command import announce
from afterwit.demo.people import MEASURE
from afterwit.demo.worlds import world_named
from afterwit.errors import SettingError
from experiments.compare.curve import Curve
from experiments.compare.plot import draw
from experiments.simulation.plan import Plan
from experiments.simulation.processes import KeptRuns, play_all
from experiments.simulation.progress import Bar

WHEN = (12, 36, 96, 150, 300)
"""Interactions after which a run is measured, in addition to the start and the end."""
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One objective or recipe in the comparison."""

    name: str
    recipe: str | None = None
    settings: tuple[str, ...] = ()


OBJECTIVES = (
    Entry(name="hybrid", settings=("objective.objective=hybrid",)),
    Entry(name="top-K OPD", settings=("objective.objective=topk_opd",)),
    Entry(name="token OPD", settings=("objective.objective=token_opd",)),
    Entry(name="RL", settings=("objective.objective=rl", "objective.w_rl=1")),
)
"""All share the world's settings: batch, replay, learning rate and everything else. Only the entry "RL" gives
RL the weight 1; the hybrid gives it a small weight, its share next to distillation."""


def run(
    *,
    world: str,
    recipes: Sequence[str],
    interactions: int,
    seeds: Sequence[int],
    out: Path,
    judge: str | None,
    jobs: int | None,
) -> list[Curve]:
    """Run what is missing in `out`, then show and write the comparison. SettingError before anything runs."""
    plans = planned(world=world, recipes=recipes, interactions=interactions, seeds=seeds, judge=judge)
    console = Console()
    for name, own in plans.items():
        announce(console, own[0].chosen(), title=name)
    with Bar(console) as bar:
        every = [plan for own in plans.values() for plan in own]
        results = iter(
            play_all(every, KeptRuns(out / "runs.jsonl"), jobs=jobs or os.cpu_count() or 1, observer=bar)
        )
    curves = [Curve(name=name, runs=tuple(next(results) for _ in own)) for name, own in plans.items()]
    (out / "compare.json").write_text(json.dumps(facts(world, curves), indent=1) + "\n", encoding="utf-8")
    draw(curves, f"{world} world, {len(seeds)} seeds: {interactions} tasks of people", out / "compare.png")
    console.print(table(curves))
    console.print(f"picture: {out / 'compare.png'}; every point: {out / 'compare.json'}")
    return curves


def planned(
    *, world: str, recipes: Sequence[str], interactions: int, seeds: Sequence[int], judge: str | None
) -> dict[str, list[Plan]]:
    """Each entry's runs, one a seed. SettingError for what is not there."""
    if not seeds or interactions < 1:
        raise SettingError(f"{len(seeds)} seeds of {interactions} interactions: each is at least 1")
    world_named(world)
    measured = tuple(sorted({0, interactions, *(at for at in WHEN if at < interactions)}))
    plans = {}
    for entry in _entries(recipes):
        plan = Plan(
            world=world,
            seed=0,
            name=entry.name,
            judge=judge,
            recipe=entry.recipe,
            settings=entry.settings,
            interactions=interactions,
            measured=measured,
        )
        plan.chosen()
        plans[entry.name] = [dataclasses.replace(plan, seed=seed) for seed in seeds]
    return plans


def _entries(recipes: Sequence[str]) -> Sequence[Entry]:
    if not recipes:
        return OBJECTIVES
    names = published.names() if ALL in recipes else recipes
    return [Entry(name=name, recipe=name) for name in names]


def facts(world: str, curves: Sequence[Curve]) -> dict[str, Any]:
    """compare.json: every run with its settings and points."""
    return {
        "world": world,
        "split": MEASURE,
        "compared": [
            {"name": curve.name, "runs": [dataclasses.asdict(run) for run in curve.runs]} for curve in curves
        ],
    }


def table(curves: Sequence[Curve]) -> Table:
    """Preference and task success: mean, least and most over the seeds; 80 columns wide at most."""
    measured = curves[0].runs[0].measured
    shown = [at for at in measured if at in (0, 36, measured[-1])]
    heads = ["start" if at == 0 else f"preference @{at}" for at in shown]
    made = Table("", *heads, f"success @{measured[-1]}", box=None, pad_edge=False)
    for curve in curves:
        start, *cells = ([point.preference for point in curve.points(at)] for at in shown)
        success = [point.task_success for point in curve.points(measured[-1])]
        made.add_row(curve.name, f"{fmean(start):.2f}", *map(spread, [*cells, success]))
    for column in made.columns:
        column.no_wrap = True
    return made


def spread(values: Sequence[float]) -> str:
    """Mean, and between which values."""
    return f"{fmean(values):.2f} ({min(values):.2f}-{max(values):.2f})"
