"""Learning curves of several entries over seeds, preference and task success side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from experiments.compare.curve import Curve

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#882255")
"""Distinct for colour-blind people too (Okabe and Ito)."""
MARKERS = "osD^vPX*"
APART = 0.008
"""Between two curves' points, as a share of the width."""


def draw(curves: Sequence[Curve], title: str, file: Path) -> None:
    """Mean over seeds with a bar from the least to the greatest; the start as a dotted line."""
    measured = curves[0].runs[0].measured
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(12, 4.8), sharey=True, layout="constrained", width_ratios=(1.25, 1)
    )
    width = (measured[-1] - measured[0]) * APART
    for index, curve in enumerate(curves):
        aside = (index - (len(curves) - 1) / 2) * width
        style = {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}
        preference = [[point.preference for point in curve.points(at)] for at in measured]
        success = [[point.task_success for point in curve.points(at)] for at in measured]
        _line(
            left, measured, preference, f"{curve.name}\n{_last(preference)}, {_last(success)}", aside, **style
        )
        _line(right, measured, success, None, aside, **style)
    first = curves[0].points(0)
    _frame(left, measured, "preference", fmean(point.preference for point in first))
    _frame(right, measured, "task success", fmean(point.task_success for point in first))
    left.set_ylabel("share of held-out tasks")
    legend = {"title": "at the end: preference,\ntask success", "frameon": False, "labelspacing": 0.9}
    figure.legend(loc="outside right center", **legend)
    figure.suptitle(title)
    figure.savefig(file, dpi=130)
    plt.close(figure)


def _last(values: Sequence[Sequence[float]]) -> str:
    return f"{fmean(values[-1]):.2f}"


def _frame(axes: Any, measured: Sequence[int], title: str, start: float) -> None:
    axes.axhline(start, color="0.5", linestyle=":", linewidth=1, zorder=0)
    axes.set(xlabel="tasks of people so far", title=title, ylim=(-0.02, 1.03), xticks=measured)
    axes.grid(axis="y", color="0.92")
    axes.spines[["top", "right"]].set_visible(False)


def _line(
    axes: Any,
    measured: Sequence[int],
    values: Sequence[Sequence[float]],
    label: str | None,
    aside: float,
    **style: str,
) -> None:
    """The means as a line, a bar from the least to the most; `aside` keeps bars of other curves apart."""
    at, means = [each + aside for each in measured], list(map(fmean, values))
    reach = [[mean - min(own) for mean, own in zip(means, values, strict=True)]]
    reach.append([max(own) - mean for mean, own in zip(means, values, strict=True)])
    axes.errorbar(at, means, yerr=reach, fmt="none", ecolor=style["color"], elinewidth=1.3, alpha=0.45)
    axes.plot(at, means, linewidth=2, markersize=5, label=label, **style)
