"""The results as one picture: how far each row is from its target, and an update's time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.measure import Row

PASS, MISS, OURS, THEIRS = "#2a9d8f", "#d1495b", "#2a9d8f", "#adb5bd"
FURTHEST = 4.0
"""Multiples of a target that are drawn as they are; what is beyond goes to the edge."""


def draw(rows: Sequence[Row], file: Path) -> None:
    """Rows with a target that do not measure errors; errors are far below theirs."""
    aimed = [row for row in rows if row.target is not None and row.values and row.target.bound > 1e-3]
    figure, (left, time, memory) = plt.subplots(
        1, 3, figsize=(11, 0.27 * len(aimed) + 1.2), width_ratios=(5, 1, 1), layout="constrained"
    )
    _targets(left, aimed)
    _bars(time, rows, "E1", "an update's time")
    _bars(memory, rows, "E2", "its peak memory")
    mpl.rcParams["svg.hashsalt"] = "afterwit"  # the same picture is the same file
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def _targets(axes: Axes, rows: Sequence[Row]) -> None:
    """A bar from the target's line: to the left there is room, to the right it is missed."""
    for place, row in enumerate(reversed(rows)):
        assert row.target is not None
        distance = row.target.distance(row.middle)
        colour = MISS if row.verdict == "MISS" else PASS
        axes.barh(place, min(distance, FURTHEST), color=colour, height=0.7)
        axes.text(
            min(distance, FURTHEST) + 0.04, place, f"{row.middle:.3g} ({row.target})", va="center", fontsize=7
        )
    axes.axvline(1.0, color="black", linewidth=1)
    names = [f"{row.id}  {row.what}" for row in reversed(rows)]
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set(
        xlim=(0, FURTHEST * 1.15),
        xlabel="multiple of the target: beyond 1 it is missed",
        ylim=(-0.6, len(rows) - 0.4),
    )
    axes.spines[["top", "right"]].set_visible(False)


def _bars(axes: Axes, rows: Sequence[Row], id: str, title: str) -> None:
    """Ours is 1; each peer what it takes in multiples of that."""
    found = [row for row in rows if row.id == id and row.values]
    heights = [1.0] + [row.middle if row.middle > 1 else 1 / row.middle for row in found]
    bars = axes.bar(range(len(heights)), heights, color=[OURS] + [THEIRS] * len(found))
    axes.bar_label(bars, fmt="%.3g x", fontsize=8)
    axes.set_xticks(
        range(len(heights)), ["ours", *(row.peer for row in found)], rotation=40, ha="right", fontsize=7
    )
    axes.set_title(title, fontsize=9)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
