"""`python -m experiments.study`: play the missing runs of the study; `study.write` makes its page.

Finished runs are kept in DATA, a JSON line each, and never run again; a run whose settings have changed since
is another run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from experiments.simulation.processes import KeptRuns, play_all
from experiments.simulation.progress import Bar
from experiments.study.factors import PLAYED, SEEDS, WORLDS, plans
from experiments.study.statistics import T_95


def main(
    only: Annotated[
        list[str] | None, typer.Option(help="A factor; may be given again. Default: all.")
    ] = None,
    world: Annotated[
        list[str] | None, typer.Option(help="A world; may be given again. Default: all.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each variant.", min=1, max=max(T_95))] = SEEDS,
    jobs: Annotated[int, typer.Option(help="Processes, one thread each.", min=1)] = 1,
    data: Annotated[Path, typer.Option(help="The finished runs.")] = Path("docs/data/study.jsonl"),
) -> None:
    """Run what is missing of the study."""
    names = [factor.name for factor in PLAYED]
    for factor in only or ():
        if factor not in names:
            raise typer.BadParameter(f"{factor}: it must be one of {', '.join(names)}", param_hint="--only")
    planned = plans(world or list(WORLDS), only or (), seeds)
    with Bar(Console()) as bar:
        play_all(planned, KeptRuns(data), jobs=jobs, observer=bar)


if __name__ == "__main__":
    typer.run(main)
