"""`python -m experiments.judges`: play what is missing of the runs with weak judges, and write their tables.

Finished runs are kept in DATA, a JSON line each, and never played again. PAGE's tables are rewritten.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from experiments.judges.runs import SEEDS, plans
from experiments.judges.table import TABLES, tables
from experiments.simulation.processes import KeptRuns, play_all
from experiments.simulation.progress import Bar
from experiments.study.page import filled


def main(
    only: Annotated[
        list[str] | None, typer.Option(help=f"A table: {', '.join(TABLES)}; may be given again.")
    ] = None,
    world: Annotated[list[str] | None, typer.Option(help="A world's runs alone: tools or chat.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each case.", min=1, max=len(SEEDS))] = len(SEEDS),
    jobs: Annotated[int, typer.Option(help="Processes, one thread each.", min=1)] = 1,
    data: Annotated[Path, typer.Option(help="The finished runs.")] = Path("docs/data/judges.jsonl"),
    page: Annotated[Path, typer.Option(help="The page with its table.")] = Path("docs/judging.md"),
) -> None:
    """Play what is missing with weak judges and other people, and print the tables."""
    for name in only or ():
        if name not in TABLES:
            raise typer.BadParameter(f"{name}: it must be one of {', '.join(TABLES)}", param_hint="--only")
    kept = KeptRuns(data)
    wanted = [plan for plan in plans(seeds, only or ()) if not world or plan.world in world]
    with Bar(Console()) as bar:
        play_all(wanted, kept, jobs=jobs, observer=bar)
    for name in TABLES:
        found = tables(list(kept.read().values()), name)
        print(found)
        if name == "judges" and page.exists():
            text = page.read_text(encoding="utf-8")
            page.write_text(filled(text, f"weak judges, {name}", found), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
