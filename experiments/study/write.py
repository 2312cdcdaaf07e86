"""`python -m experiments.study.write`: the documentation's tables and pictures from the finished runs.

In DOCS, `data/study.jsonl` makes what stands between the marks of `study.md`, and `data/recipes.jsonl` with
`data/objectives.jsonl` that of `recipes.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from afterwit import recipes
from experiments.compare import plot as compare_plot
from experiments.compare.compare import OBJECTIVES
from experiments.simulation.plan import RunResult
from experiments.simulation.processes import KeptRuns
from experiments.study import page, plot

COMPARED = {"recipes": recipes.names(), "objectives": tuple(entry.name for entry in OBJECTIVES)}


def main(docs: Annotated[Path, typer.Option(help="The documentation's folder.")] = Path("docs")) -> None:
    """Write the tables and pictures anew."""
    for name, blocks in written(docs).items():
        path = docs / name
        path.write_text(blocks, encoding="utf-8")
    results = _runs(docs, "study")
    for world in _worlds(results):
        plot.draw(results, world, docs / f"study-{world}.png")
    for kind, names in COMPARED.items():
        runs = _runs(docs, kind)
        for world in _worlds(runs):
            compared = list(page.compared(runs, names, world))
            seeds = len(compared[0].runs)
            compare_plot.draw(compared, f"{world} world, {seeds} seeds", docs / f"{kind}-{world}.png")


def written(docs: Path) -> dict[str, str]:
    """Each page with its tables as the runs have them."""
    study = (docs / "study.md").read_text(encoding="utf-8")
    results = _runs(docs, "study")
    for world in _worlds(results):
        study = page.filled(study, world, page.study(results, world))
    compared = (docs / "recipes.md").read_text(encoding="utf-8")
    for kind, names in COMPARED.items():
        runs = _runs(docs, kind)
        for world in _worlds(runs):
            block = page.curves(list(page.compared(runs, names, world)))
            compared = page.filled(compared, f"{kind}, {world}", block)
    return {"study.md": study, "recipes.md": compared}


def _runs(docs: Path, kind: str) -> list[RunResult]:
    return list(KeptRuns(docs / "data" / f"{kind}.jsonl").read().values())


def _worlds(results: Sequence[RunResult]) -> Iterator[str]:
    """The worlds that there are runs of, in alphabetical order."""
    return iter(sorted({result.facts["world"] for result in results}))


if __name__ == "__main__":
    typer.run(main)
