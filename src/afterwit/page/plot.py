"""Small line plots as SVG. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from markupsafe import Markup

WIDTH, HEIGHT = 320.0, 96.0
SIDE, FLOOR, TOP = 6.0, 88.0, 8.0
"""The margin on both sides, and where the axis ends."""

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
    low, high = (0.0, 1.0) if share else (min(y for _, y in finite), max(y for _, y in finite))
    if low == high:  # a flat curve lies in the middle
        low, high = low - (abs(low) or 1.0), high + (abs(high) or 1.0)
    (start, first), (end, last) = finite[0], finite[-1]

    def path(points: Iterable[Point]) -> str:
        across, up = (WIDTH - 2 * SIDE) / ((end - start) or 1.0), (FLOOR - TOP) / (high - low)
        places = (f"{SIDE + (x - start) * across:.1f} {FLOOR - (y - low) * up:.1f}" for x, y in points)
        return "M" + "L".join(places)

    def written(value: float) -> str:
        if share:
            return f"{value:.0%}"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"

    around = [(x, upper) for x, _, upper in band] + [(x, lower) for x, lower, _ in reversed(band)]
    return Markup(
        '<figure class="plot"><figcaption><span>{title}</span> <b>{last}</b></figcaption>'
        '<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{said}" preserveAspectRatio="none">'
        '<path class="base" d="M0 {floor:g}H{width:g}"/><path class="area" d="{area}Z"/>'
        '<path class="curve" d="{curve}"/></svg>'
        '<div class="range"><span>first {first}</span><span>{low} \u2013 {high}</span></div></figure>'
    ).format(
        title=title,
        last=written(last),
        first=written(first),
        low=written(low),
        high=written(high),
        width=WIDTH,
        height=HEIGHT,
        said=f"{title}: from {written(first)} to {written(last)}, in {len(finite)} points",
        floor=FLOOR,
        curve=path(finite),
        area=path(around or [*finite, (end, low), (start, low)]),
    )
