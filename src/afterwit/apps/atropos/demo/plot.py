"""What the demo measured, as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

from afterwit.apps.atropos.demo.run import Measured

mpl.use("Agg")
from matplotlib import pyplot as plt  # the backend is chosen before


def draw(points: Sequence[Measured], title: str, file: Path) -> None:
    """Pass rate and correctness on held-out tasks over the trainer's versions."""
    versions = [point.version for point in points]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(
        versions,
        [point.correctness for point in points],
        color="0.55",
        marker="s",
        markersize=4,
        label="mean correctness",
    )
    axes.plot(
        versions,
        [point.pass_rate for point in points],
        color="tab:blue",
        marker="o",
        linewidth=2.5,
        label="pass rate",
    )
    axes.set(xlabel="version", ylabel="held-out tasks", ylim=(-0.02, 1.05), title=title)
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=130)
    plt.close(figure)
