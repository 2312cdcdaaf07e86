"""The differences that the study found, all in one picture of a world."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from afterwit.apps.demo.laboratory.plan import Outcome
from afterwit.apps.demo.study.factors import EARLY, FACTORS, LATE, OWN
from afterwit.apps.demo.study.page import by_name, preference, success
from afterwit.apps.demo.study.statistics import Measure, difference, measure, seeded

BETTER, WORSE, UNSURE = "#0072b2", "#d55e00", "0.6"
ROW_INCHES = 0.23
SHOWN: dict[str, Measure] = {
    f"preference after {EARLY}": measure(EARLY, "fresh", preference),
    f"preference after {LATE}": measure(LATE, "fresh", preference),
    f"task success after {LATE}": measure(LATE, "fresh", success),
}


def draw(outcomes: Sequence[Outcome], world: str, file: Path) -> None:
    """Each variant less the world's own settings: the mean, its 95 % interval, a small dot a seed."""
    runs = by_name(outcomes, world)
    rows = _rows(list(runs))
    figure, axes = plt.subplots(
        1, 3, figsize=(11, 1.2 + ROW_INCHES * len(rows)), sharey=True, layout="constrained"
    )
    for one, (title, what) in zip(axes, SHOWN.items(), strict=True):
        _panel(one, title, len(rows))
        for place, (_, name) in enumerate(rows):
            if name is not None:
                _difference(one, place, runs[name], runs[OWN], what)
    axes[0].set_yticks(range(len(rows)), [label for label, _ in rows])
    for label, (_, name) in zip(axes[0].get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if name is None else "normal")
    figure.suptitle(f"{world} world: differences from its own settings, paired by seed, 95 % intervals")
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _rows(there: Sequence[str]) -> list[tuple[str, str | None]]:
    """A label a row; factors as heads, variants with the name of their runs."""
    rows: list[tuple[str, str | None]] = []
    for factor in FACTORS:
        variants = [(variant.name, f"{factor.name}: {variant.name}") for variant in factor.variants]
        known = [(label, name) for label, name in variants if name in there]
        rows += [(factor.title, None), *known] if known else []
    return rows


def _panel(axes: Any, title: str, rows: int) -> None:
    axes.set_ylim(rows - 0.3, -0.7)
    axes.axvline(0, color="0.4", linewidth=1)
    axes.set_title(title)
    axes.grid(axis="x", color="0.92")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _difference(axes: Any, place: int, runs: Sequence[Outcome], own: Sequence[Outcome], of: Measure) -> None:
    found, ours = difference(runs, own, of), seeded(own)
    colour = UNSURE if not found.beyond_noise else BETTER if found.mean > 0 else WORSE
    dots = [of(run) - of(ours[run.facts["seed"]]) for run in runs if run.facts["seed"] in ours]
    axes.plot(dots, [place] * len(dots), ".", color=colour, alpha=0.35, markersize=4)
    axes.errorbar(found.mean, place, xerr=found.half or 0.0, fmt="o", color=colour, markersize=5, capsize=2)
