"""Small line plots as SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

WIDTH, HEIGHT = 320.0, 96.0
LEFT, RIGHT, TOP, BOTTOM = 6.0, 6.0, 8.0, 8.0

Point = tuple[float, float]

Band = Sequence[tuple[float, float, float]]
"""x, lower end, upper end."""


def line(points: Sequence[Point], *, title: str, share: bool = False, band: Band = ()) -> Markup:
    """A curve with its first and last value. With `share`, the axis runs from 0 to 1 in per cent.

    The area down to the floor is filled, or the `band` of intervals if there is one. Screen readers get a
    sentence; colours come from the page's style. Empty for fewer than two points.
    """
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    if len(finite) < 2:
        return Markup("")
    low, high = (0.0, 1.0) if share else _range([y for _, y in finite])
    first, last = finite[0][1], finite[-1][1]
    said = f"{title}: from {written(first, share)} to {written(last, share)}, in {len(finite)} points"
    ends = _place(finite[-1], finite, low, high)
    return Markup(
        '<figure class="plot"><figcaption><span>{title}</span> <b>{last}</b></figcaption>'
        '<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{said}" preserveAspectRatio="none">'
        '<path class="base" d="M0 {floor:g}H{width:g}"/><path class="area" d="{area}"/>'
        '<path class="curve" d="{curve}"/></svg>'
        '<div class="range"><span>{first}</span><span>{low} \u2013 {high}</span></div></figure>'
    ).format(
        title=title,
        last=written(last, share),
        first="first " + written(first, share),
        low=written(low, share),
        high=written(high, share),
        width=WIDTH,
        height=HEIGHT,
        said=said,
        floor=HEIGHT - BOTTOM,
        curve=_path(finite, low, high),
        area=_band(band, finite, low, high)
        if band
        else f"{_path(finite, low, high)}L{ends[0]:.1f} {HEIGHT - BOTTOM:g}L{LEFT:g} {HEIGHT - BOTTOM:g}Z",
    )


def written(value: float, share: bool = False) -> str:
    """A number for people: three digits, or whole per cent."""
    if share:
        return f"{value:.0%}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _range(values: Sequence[float]) -> Point:
    """From the least to the greatest; a flat curve lies in the middle."""
    low, high = min(values), max(values)
    if low == high:
        room = abs(low) or 1.0
        return low - room, high + room
    return low, high


def _path(points: Sequence[Point], low: float, high: float) -> str:
    places = (_place(point, points, low, high) for point in points)
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _band(band: Band, points: Sequence[Point], low: float, high: float) -> str:
    """Along the upper ends, and back along the lower ones."""
    around = [*((x, upper) for x, _, upper in band), *((x, lower) for x, lower, _ in reversed(band))]
    places = (_place(point, points, low, high) for point in around)
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places) + "Z"


def _place(point: Point, points: Sequence[Point], low: float, high: float) -> Point:
    start, end = points[0][0], points[-1][0]
    x = LEFT + (point[0] - start) / ((end - start) or 1.0) * (WIDTH - LEFT - RIGHT)
    y = HEIGHT - BOTTOM - (point[1] - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
    return x, y
