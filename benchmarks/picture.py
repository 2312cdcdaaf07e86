"""The results as one picture: how far each row is from its target, and an update's time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.measure import Row

PASS, MISS, THEIRS = "#2a9d8f", "#d1495b", "#adb5bd"
FURTHEST = 4.0
"""Multiples of a target that are drawn as they are; what is beyond goes to the edge."""


def draw(rows: Sequence[Row], file: Path) -> None:
    """The rows' distances from their targets, and an update's time and memory."""
    aimed = list(filter(drawn, rows))
    figure, axes = plt.subplot_mosaic(
        [["targets", "time"], ["targets", "memory"]],
        figsize=(11, 0.26 * len(aimed) + 0.8),
        width_ratios=(3, 1),
        layout="constrained",
    )
    _targets(axes["targets"], aimed)
    _bars(axes["time"], rows, "E1", "one update: time")
    _bars(axes["memory"], rows, "E2", "one update: peak memory")
    mpl.rcParams["svg.hashsalt"] = "afterwit"  # the same picture is the same file
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None, dpi=110)
    plt.close(figure)


def drawn(row: Row) -> bool:
    """Whether the row has a target and measures no error; errors are far below theirs."""
    return row.target is not None and bool(row.values) and row.target.bound > 1e-3


def _targets(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw the line of the targets: rows to its left meet theirs, rows to its right miss."""
    for place, row in enumerate(reversed(rows)):
        if row.target is None:
            continue
        distance = min(row.target.distance(row.middle), FURTHEST)
        axes.barh(place, distance, color=MISS if row.verdict == "MISS" else PASS, height=0.7)
        label = f"{row.figures}, target {row.target}"
        axes.text(max(distance, 1.0) + 0.04, place, label, va="center", fontsize=7)
    axes.axvline(1.0, color="black", linewidth=1)
    names = [f"{row.what}  {row.id}" for row in reversed(rows)]
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set(xlim=(0, FURTHEST * 1.2), xlabel="multiple of the target", ylim=(-0.6, len(rows) - 0.4))
    axes.spines[["top", "right"]].set_visible(False)


def _bars(axes: Axes, rows: Sequence[Row], id: str, title: str) -> None:
    """Ours is 1; each peer's in multiples of that, of the first row that names it."""
    found = {row.peer: row.middle for row in reversed(rows) if row.id == id and row.values}
    heights = {"ours": 1.0} | {
        peer: value if value > 1 else 1 / value for peer, value in reversed(found.items())
    }
    bars = axes.bar(
        [name.replace(" ", "\n") for name in heights],
        list(heights.values()),
        color=[PASS] + [THEIRS] * len(found),
        width=0.6,
    )
    axes.bar_label(bars, fmt="%.3g x", fontsize=8)
    axes.tick_params(axis="x", labelsize=7, length=0)
    axes.set_title(title, fontsize=9)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
