"""`python -m experiments.study.write`: the documentation's tables and pictures from the finished runs.

In ROOT, `docs/data/study.jsonl` makes the pictures of `docs/study.md`, and `docs/data/live.jsonl` the tables
between the marks of `docs/demo.md` and `README.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from afterwit import recipes
from experiments.live import tables
from experiments.live.runs import LiveResult, LiveRuns
from experiments.simulation.plan import RunResult
from experiments.simulation.processes import KeptRuns
from experiments.study import page
from experiments.study.factors import OWN, WORLDS

OBJECTIVES = ("top-K OPD", "token OPD", "RL")
COMPARED: Mapping[str, Mapping[str, str]] = {
    "recipes": {name: f"recipe: {name}" for name in recipes.names()},
    "objectives": {"hybrid": OWN, **{name: f"objective: {name}" for name in OBJECTIVES}},
}
"""Curves by their name in `study.md`, with the names of their runs."""


def main(root: Annotated[Path, typer.Option(help="The repository's folder.")] = Path()) -> None:
    """Write the tables and pictures."""
    from experiments.compare import plot as compare_plot
    from experiments.study import plot

    docs = root / "docs"
    for name, text in written(root).items():
        (root / name).write_text(text, encoding="utf-8")
    results = _study(docs)
    for world in WORLDS:
        plot.draw(results, world, docs / f"study-{world}.png")
        for kind, names in COMPARED.items():
            curves = page.compared(results, names, world)
            title = f"{world} world, {len(curves[0].runs)} seeds"
            compare_plot.draw(curves, title, docs / f"{kind}-{world}.png")


def written(root: Path) -> dict[str, str]:
    """Each page, by its path, with its tables as the runs have them."""
    pages = {name: (root / name).read_text(encoding="utf-8") for name in ("docs/demo.md", "README.md")}
    for name, mark, block in _blocks(_live(root / "docs")):
        pages[name] = page.filled(pages[name], mark, block)
    return pages


def _blocks(live: Sequence[LiveResult]) -> list[tuple[str, str, str]]:
    """Page, mark and block."""
    blocks = [("README.md", "live", tables.means(live))]
    for world in WORLDS:
        own = [result for result in live if result.world == world]
        blocks.append(("docs/demo.md", f"live, {world}", tables.by_seed(own)))
    return blocks


def _study(docs: Path) -> list[RunResult]:
    return list(KeptRuns(docs / "data" / "study.jsonl").read().values())


def _live(docs: Path) -> list[LiveResult]:
    return list(LiveRuns(docs / "data" / "live.jsonl").read().values())


if __name__ == "__main__":
    typer.run(main)
