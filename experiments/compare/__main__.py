"""`python -m experiments.compare`: objectives or published recipes in one world, over several seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from afterwit import recipes
from afterwit.errors import AfterwitError
from experiments.compare.compare import run


def main(
    world: Annotated[
        str,
        typer.Option(help="tools: a project's house rules, real files. chat: how a person likes answers."),
    ] = "tools",
    recipe: Annotated[
        list[str] | None,
        typer.Option(
            help=f"A published recipe, may be given again: {', '.join(recipes.names())}; or all. "
            "Default: four objectives instead of recipes."
        ),
    ] = None,
    interactions: Annotated[int, typer.Option(help="How many tasks people give in each run.")] = 96,
    seed: Annotated[int, typer.Option(help="The first run's seed; the others count up from it.")] = 0,
    seeds: Annotated[int, typer.Option(help="Runs of each objective or recipe.")] = 4,
    judge: Annotated[str | None, typer.Option(help="model or rules. Default: the demo's.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes. Default: one for each core.", min=1)] = None,
    out: Annotated[Path, typer.Option(help="Where runs, table and picture go.")] = Path("build/compare"),
) -> None:
    """Compare objectives, or published recipes, under the same tuning.

    Leaves compare.png, compare.json and runs.jsonl in OUT. A run that is in runs.jsonl is not played again.
    """
    try:
        run(
            world=world,
            recipes=recipe or (),
            interactions=interactions,
            seeds=range(seed, seed + seeds),
            out=out,
            judge=judge,
            jobs=jobs,
        )
    except AfterwitError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    typer.run(main)
