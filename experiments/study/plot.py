"""The differences that the study found, all in one picture of a world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from experiments.simulation.plan import RunResult
from experiments.study.page import by_name, shown, there
from experiments.study.statistics import Measure, difference, seeded

BETTER, WORSE, UNSURE = "#0072b2", "#d55e00", "0.6"
ROW_INCHES = 0.23


def draw(results: Sequence[RunResult], world: str, file: Path) -> None:
    """Each variant less what it is compared with: the mean, its 95 % interval, a small dot a seed."""
    rows = rows_of(by_name(results, world))
    figure, axes = plt.subplots(
        1, 3, figsize=(11, 1.2 + ROW_INCHES * len(rows)), sharey=True, layout="constrained"
    )
    for one, (title, what) in zip(axes, shown(world).items(), strict=True):
        _panel(one, title, len(rows))
        for index, row in enumerate(rows):
            if row.runs:
                _difference(one, index, row, what)
    axes[0].set_yticks(range(len(rows)), [row.label for row in rows])
    for label, row in zip(axes[0].get_yticklabels(), rows, strict=True):
        label.set_fontweight("normal" if row.runs else "bold")
    figure.suptitle(f"{world} world: differences, paired by seed, with 95 % intervals")
    figure.savefig(file, dpi=110)
    plt.close(figure)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the picture: a factor's title, or a variant with its runs and those it is compared with."""

    label: str
    runs: Sequence[RunResult] = ()
    against: Sequence[RunResult] = ()


def rows_of(runs: Mapping[str, Sequence[RunResult]]) -> list[Row]:
    """Each factor's title, followed by its variants that were run."""
    rows: list[Row] = []
    for factor in there(runs):
        rows.append(Row(factor.title))
        rows += [
            Row(variant.name, runs[name], runs[factor.against])
            for name, variant in factor.runs().items()
            if name in runs
        ]
    return rows


def _panel(axes: Any, title: str, rows: int) -> None:
    axes.set_ylim(rows - 0.3, -0.7)
    axes.axvline(0, color="0.4", linewidth=1)
    axes.set_title(title)
    axes.grid(axis="x", color="0.92")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _difference(axes: Any, index: int, row: Row, of: Measure) -> None:
    found, ours = difference(row.runs, row.against, of), seeded(row.against)
    colour = UNSURE if not found.beyond_noise else BETTER if found.mean > 0 else WORSE
    dots = [of(run) - of(ours[run.facts["seed"]]) for run in row.runs if run.facts["seed"] in ours]
    axes.plot(dots, [index] * len(dots), ".", color=colour, alpha=0.35, markersize=4)
    axes.errorbar(found.mean, index, xerr=found.half or 0.0, fmt="o", color=colour, markersize=5, capsize=2)
