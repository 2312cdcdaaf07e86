"""The learning curve as one picture."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt


def draw(points: Sequence[tuple[int, float, float, float]], title: str, file: Path) -> None:
    """Preference and task success over interactions; a point is (interactions, seconds, preference,
    success).
    """
    count, _, preference, success = zip(*points, strict=True)
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axes.plot(count, success, color="0.55", marker="s", markersize=4, label="task success")
    axes.axhline(success[0], color="0.8", linestyle=":", linewidth=1)
    axes.plot(count, preference, color="tab:blue", marker="o", linewidth=2.5, label="preference")
    axes.axhline(preference[0], color="tab:blue", linestyle=":", linewidth=1, alpha=0.6)
    axes.annotate(
        f"start {preference[0]:.2f}", (count[0], preference[0]), xytext=(6, 6), textcoords="offset points"
    )
    axes.annotate(
        f"{preference[-1]:.2f}", (count[-1], preference[-1]), xytext=(-24, -16), textcoords="offset points"
    )
    axes.set(xlabel="interactions", ylabel="share of held-out tasks", ylim=(-0.02, 1.05), title=title)
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=130)
    plt.close(figure)
