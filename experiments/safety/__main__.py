"""`python -m experiments.safety`: play what is missing, with promotion and without, and print the table.

Finished runs are kept in DATA, a JSON line each, and never played again. PAGE's table is rewritten.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from experiments.safety import poison
from experiments.safety.poison_table import poison_table
from experiments.safety.runs import SEEDS, plans
from experiments.safety.table import table
from experiments.simulation.processes import KeptRuns, play_all
from experiments.simulation.progress import Bar
from experiments.study.page import filled

MARK, POISON = "safety", "poison"


def main(
    seeds: Annotated[int, typer.Option(help="Runs of each case.", min=1, max=len(SEEDS))] = len(SEEDS),
    poisoned: Annotated[
        int, typer.Option(help="Seeds of the runs with poison.", min=0, max=len(poison.SEEDS))
    ] = len(poison.SEEDS),
    jobs: Annotated[int, typer.Option(help="Processes, one thread each.", min=1)] = 1,
    data: Annotated[Path, typer.Option(help="The finished runs.")] = Path("docs/data/safety.jsonl"),
    page: Annotated[Path, typer.Option(help="The page with the table.")] = Path("docs/safety.md"),
) -> None:
    """Play what is missing, with promotion and without, and print the table."""
    kept = KeptRuns(data)
    with Bar(Console()) as bar:
        play_all(plans(seeds), kept, jobs=jobs, observer=bar)
        play_all(poison.plans(poisoned), kept, jobs=jobs, observer=bar, play=poison.play)
    results = list(kept.read().values())
    for mark, found in ((MARK, table(results)), (POISON, poison_table(results))):
        print(found)
        if page.exists():
            page.write_text(filled(page.read_text(encoding="utf-8"), mark, found), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
