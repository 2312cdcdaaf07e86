"""Shares over the number of conversations as SVG, in the colours of the page that holds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

LEFT, RIGHT, TOP, BOTTOM = 30, 34, 10, 20
"""Margins in the picture's units, for the labels."""


LINE = 12.0
"""The height of a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A share from 0 to 1 after some numbers of conversations."""

    name: str
    style: str
    """The class that gives it its colour."""
    points: Sequence[tuple[int, float]]
    """(conversations, share), ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened, and after how many conversations."""

    after: int
    style: str
    words: str


def chart(curves: Sequence[Curve], *, width: int, height: int, label: str, marks: Sequence[Mark] = ()) -> str:
    """The curves in one picture; `label` is read out in its place. The curves share their x axis."""
    most = max(at for curve in curves for at, _ in curve.points) or 1

    def x(at: float) -> float:
        return round(LEFT + (width - LEFT - RIGHT) * at / most, 1)

    def y(share: float) -> float:
        return round(TOP + (height - TOP - BOTTOM) * (1 - share), 1)

    def drawn() -> Iterator[str]:
        for share in (0, 0.5, 1):
            yield f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{y(share)}" y2="{y(share)}"/>'
            yield f'<text class="end" x="{LEFT - 5}" y="{y(share) + 4}">{share:g}</text>'
        for at in _ticks([at for at, _ in curves[0].points], most):
            yield f'<text class="middle" x="{x(at)}" y="{height - 4}">{at}</text>'
        for mark in marks:
            line = f'<line class="{mark.style}" x1="{x(mark.after)}" x2="{x(mark.after)}" y1="{TOP}"'
            yield f'{line} y2="{height - BOTTOM}"><title>{escape(mark.words)}</title></line>'
        for curve in curves:
            line = " ".join(f"{x(at)},{y(share)}" for at, share in curve.points)
            yield f'<polyline class="{curve.style}" points="{line}"/>'
            for at, share in curve.points:
                said = f"{curve.name} after {at}: {share:.2f}"
                yield f'<circle class="{curve.style}" cx="{x(at)}" cy="{y(share)}" r="3">'
                yield f"<title>{escape(said)}</title></circle>"
        ends = sorted(((y(curve.points[-1][1]), curve) for curve in curves), key=lambda end: end[0])
        for (_, curve), level in zip(ends, _apart([end for end, _ in ends]), strict=True):
            said = f"{curve.points[-1][1]:.2f}"
            yield f'<text class="{curve.style}" x="{width - RIGHT + 6}" y="{level + 4}">{said}</text>'

    size = f'viewBox="0 0 {width} {height}" style="max-width:{1.5 * width:.0f}px"'
    return f'<svg {size} role="img" aria-label="{escape(label)}">{"".join(drawn())}</svg>'


def _ticks(counts: Sequence[int], most: int) -> list[int]:
    """Those counts that have room for a label, the last one among them."""
    shown: list[int] = []
    for count in sorted(counts, reverse=True):
        if not shown or shown[-1] - count >= most / 9:
            shown.append(count)
    return shown


def _apart(levels: Sequence[float]) -> list[float]:
    """Heights of labels that would begin at these, ascending, so that none is written over another."""
    placed: list[float] = []
    for level in levels:
        placed.append(max(level, placed[-1] + LINE) if placed else level)
    return placed


mpl.use("Agg")


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
