"""Shares over the number of conversations as SVG, in the colours of the page that holds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

LEFT, RIGHT, TOP, BOTTOM = 30, 34, 10, 20
"""Margins in the picture's units, for the labels."""
LINE = 12.0
"""The height of a label."""
STYLE = """
text { font: 11px sans-serif; fill: #5c6670; } .middle { text-anchor: middle; } .end { text-anchor: end; }
.grid { stroke: #d5dbe1; } polyline { fill: none; stroke-width: 2.5; }
.preference { stroke: #1663b8; } .success { stroke: #5c6670; }
.hold, .alarm { stroke: #8a5a00; stroke-width: 3; }
circle.preference { fill: #1663b8; } circle.success { fill: #5c6670; }
text.preference { fill: #1663b8; stroke: none; } text.success { stroke: none; }
"""
"""Of a picture that stands alone."""


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


def alone(svg: str) -> str:
    """The picture as a file of its own."""
    return svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(
        ">", f"><style>{STYLE}</style>", 1
    )


def chart(curves: Sequence[Curve], *, width: int, height: int, label: str, marks: Sequence[Mark] = ()) -> str:
    """The curves in one picture, over one x axis. `label` replaces it for readers that cannot see."""
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
                title = f"{curve.name} after {at}: {share:.2f}"
                yield f'<circle class="{curve.style}" cx="{x(at)}" cy="{y(share)}" r="3">'
                yield f"<title>{escape(title)}</title></circle>"
        level = 0.0
        for end, curve in sorted(((y(curve.points[-1][1]), curve) for curve in curves), key=lambda e: e[0]):
            level = max(end, level + LINE) if level else end  # no label over another
            last = f"{curve.points[-1][1]:.2f}"
            yield f'<text class="{curve.style}" x="{width - RIGHT + 6}" y="{level + 4}">{last}</text>'

    size = f'viewBox="0 0 {width} {height}" style="max-width:{1.5 * width:.0f}px"'
    return f'<svg {size} role="img" aria-label="{escape(label)}">{"".join(drawn())}</svg>'


def _ticks(counts: Sequence[int], most: int) -> list[int]:
    """Those counts that have room for a label, the last one among them."""
    shown: list[int] = []
    for count in sorted(counts, reverse=True):
        if not shown or shown[-1] - count >= most / 9:
            shown.append(count)
    return shown
