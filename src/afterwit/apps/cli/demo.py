"""`afterwit demo`: the whole loop with a tiny model and simulated people, live; or many runs, compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afterwit.apps import recipes
from afterwit.core.errors import SettingError


def demo(
    world: Annotated[
        str,
        typer.Option(help="tools: a project's house rules, real files. chat: how a person likes answers."),
    ] = "tools",
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A published recipe: {', '.join(recipes.names())}. With --compare several, or all."
        ),
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="hybrid, topk_opd, token_opd, rl, ... Default: the recipe's.")
    ] = None,
    interactions: Annotated[int, typer.Option(help="How many tasks people give.")] = 96,
    seed: Annotated[int, typer.Option(help="Tasks, people and sampling follow from it.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("demo-report"),
    judge: Annotated[str | None, typer.Option(help="model or rules. Default: the recipe's.")] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare objectives, or the recipes named, over several seeds.")
    ] = False,
    seeds: Annotated[int | None, typer.Option(help="With --compare: runs of each. Default 4.")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="With --compare: processes. Default: as many as cores.", min=1)
    ] = None,
) -> None:
    """See an agent learn from being used: real gateway, real clients, a tiny model, a few minutes, no GPU.

    Leaves report.html, report.json and learning.png in OUT; with --compare, compare.png and compare.json.
    """
    if compare:
        from experiments.compare import compare as comparison

        _refuse(objective is not None, "--objective", "is for one run; --compare takes all of them")
        comparison.run(
            world=world,
            recipes=recipe or (),
            interactions=interactions,
            seeds=range(seed, seed + (4 if seeds is None else seeds)),
            out=out,
            judge=judge,
            jobs=jobs,
        )
        return
    from afterwit.apps.demo.command import run

    _refuse(seeds is not None, "--seeds", "goes with --compare")
    _refuse(jobs is not None, "--jobs", "goes with --compare")
    _refuse(len(recipe or ()) > 1, "--recipe", "may be given several times with --compare only")
    run(
        world=world,
        objective=objective,
        recipe=recipe[0] if recipe else None,
        interactions=interactions,
        seed=seed,
        out=out,
        judge=judge,
    )


def _refuse(wrong: bool, option: str, why: str) -> None:
    if wrong:
        raise SettingError(f"{option} {why}")
