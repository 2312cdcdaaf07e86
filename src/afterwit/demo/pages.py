"""The pages of runs: a report's files, its curves, and the table of its measurements."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from rich.table import Table
from rich.text import Text

Facts = Mapping[str, Any]
"""Content of report.json, or a part."""
Curve = tuple[str, str, Sequence[tuple[int, float]]]
"""Its name, the class that gives it its colour, and its points: conversations, ascending, and a share."""
BAR = 30
"""Columns of a share of 1 on a terminal."""
LEFT, RIGHT, TOP, BOTTOM = 30, 34, 10, 20
"""Margins in the picture's units, for the labels."""
LINE = 12.0
STYLE = """
text { font: 11px sans-serif; fill: #5c6670; } .middle { text-anchor: middle; } .end { text-anchor: end; }
.grid { stroke: #d5dbe1; } polyline { fill: none; stroke-width: 2.5; }
.preference { stroke: #1663b8; } .success { stroke: #5c6670; }
.hold, .alarm { stroke: #8a5a00; stroke-width: 3; }
circle.preference { fill: #1663b8; } circle.success { fill: #5c6670; }
text.preference { fill: #1663b8; stroke: none; } text.success { stroke: none; }
"""
"""Of a picture that stands alone."""
_PAGES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def write(page: str, facts: Facts, curves: str, out: Path, **shown: object) -> None:
    """Write report.json, learning.svg unless `curves` is empty, and report.html: the template `page` with the
    facts, with `shown` over them. Every text in it is escaped, but for `Markup`."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    if curves:
        alone = '<svg xmlns="http://www.w3.org/2000/svg" '
        picture = curves.replace("<svg ", alone, 1).replace(">", f"><style>{STYLE}</style>", 1)
        (out / "learning.svg").write_text(picture, encoding="utf-8")
    template = _PAGES.get_template(f"{page}.html")
    html = template.render({**facts, "picture": Markup(curves), **shown})
    (out / "report.html").write_text(html, encoding="utf-8")


def measurements(titles: Sequence[str], rows: Iterable[tuple[int, float, *tuple[str, ...]]]) -> Table:
    """A row for each measurement: the conversations before it, the share, drawn as well, and more cells."""
    table = Table(titles[0], titles[1], "", *titles[2:], box=None, pad_edge=False)
    for number, share, *more in rows:
        bar = Text(("█" * round(BAR * share)).ljust(BAR, "·"), style="blue")
        table.add_row(str(number), f"{share:.2f}", bar, *more)
    return table


def chart(
    curves: Sequence[Curve], *, width: int, height: int, label: str, marks: Sequence[Facts] = ()
) -> str:
    """Shares over the number of conversations as SVG, in the colours of the page that holds it.

    `label` replaces it for readers that cannot see; `marks` are decisions.
    """
    most = max(at for *_, points in curves for at, _ in points) or 1

    def x(at: float) -> float:
        return round(LEFT + (width - LEFT - RIGHT) * at / most, 1)

    def y(share: float) -> float:
        return round(TOP + (height - TOP - BOTTOM) * (1 - share), 1)

    drawn: list[str] = []
    for share in (0, 0.5, 1):
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{y(share)}" y2="{y(share)}"/>')
        drawn.append(f'<text class="end" x="{LEFT - 5}" y="{y(share) + 4}">{share:g}</text>')
    labelled: list[int] = []
    for at in sorted((at for at, _ in curves[0][2]), reverse=True):
        if not labelled or labelled[-1] - at >= most / 9:  # room for a label, the last one's first
            labelled.append(at)
            drawn.append(f'<text class="middle" x="{x(at)}" y="{height - 4}">{at}</text>')
    for mark in marks:
        place = f'x1="{x(mark["after"])}" x2="{x(mark["after"])}" y1="{TOP}" y2="{height - BOTTOM}"'
        title = f"<title>{escape(mark['words'])}</title>"
        drawn.append(f'<line class="{mark["kind"]}" {place}>{title}</line>')
    for name, style, points in curves:
        line = " ".join(f"{x(at)},{y(share)}" for at, share in points)
        drawn.append(f'<polyline class="{style}" points="{line}"/>')
        for at, share in points:
            title = f"<title>{escape(f'{name} after {at}: {share:.2f}')}</title>"
            drawn.append(f'<circle class="{style}" cx="{x(at)}" cy="{y(share)}" r="3">{title}</circle>')
    level = 0.0
    for end, style, share in sorted((y(points[-1][1]), style, points[-1][1]) for _, style, points in curves):
        level = max(end, level + LINE) if level else end  # no label over another
        place = f'x="{width - RIGHT + 6}" y="{level + 4}"'
        drawn.append(f'<text class="{style}" {place}>{share:.2f}</text>')
    size = f'viewBox="0 0 {width} {height}" style="max-width:{1.5 * width:.0f}px"'
    return f'<svg {size} role="img" aria-label="{escape(label)}">{"".join(drawn)}</svg>'
