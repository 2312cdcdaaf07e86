"""The curves: shares of turns and requests, and metrics of versions, as small plots in SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup
from starlette.requests import Request

from afterwit.gateway.context import Gateway
from afterwit.judging.checks import Judged
from afterwit.page.html import plain
from afterwit.page.lists import COUNTED_REQUESTS, Facts
from afterwit.progress import PersonRequest, wilson_interval
from afterwit.promotion.watch import requests_of
from afterwit.store import Store, VersionRecord

MOST_TURNS, MOST_VERSIONS = 2_000, 200
"""The newest turns and versions that the view reads."""
BIN = 25
"""Turns, or requests, that one point of a curve counts."""
WIDTH, HEIGHT = 320.0, 96.0
SIDE, FLOOR, TOP = 6.0, 88.0, 8.0
"""The margin on both sides, and where the axis ends."""

Point = tuple[float, float]
Band = Sequence[tuple[float, float, float]]
"""x, lower end, upper end."""

FIRST_METRICS = (
    *("way_to_teacher", "plain_kl", "loss", "rl", "opd", "combine", "reference_kl", "entropy"),
    *("mismatch_mean", "mismatch_fresh", "teacher_gap", "overlap", "grad_norm"),
)

METRIC_TITLES: Mapping[str, str] = {
    "way_to_teacher": "share of the way to the teacher",
    "plain_kl": "KL to the base on plain prompts",
    "answer_tokens": "tokens of an answer",
    "unheeded": "hints that the teacher does not follow",
    "past_teacher": "disliked answers whose hints are learned",
    "rl": "loss of the rewards",
    "opd": "loss of the hints",
    "combine": "loss of rewards and hints",
    "reference_kl": "KL to the base model",
    "grad_norm": "norm of the gradient",
}

METRIC_NOTES: Mapping[str, str] = {
    "way_to_teacher": "How far an update went towards the teacher, which saw the hints: 1 is all the way.",
    "plain_kl": "How far answers to plain questions have moved, in nats a token: it predicts forgetting.",
    "unheeded": "The share of hints that leave the teacher's answer as likely as it was: they teach nothing.",
    "past_teacher": "The model avoids them more than its teacher does, so distillation leaves them out.",
    "loss": "The sum of all terms, each times its weight, before the update's last step.",
    "reference_kl": "How far the model has moved from the original, in nats a token.",
    "entropy": "How uncertain the model is of the next token, in nats. Near 0 its answers hardly vary.",
    "mismatch_mean": "The distance between learner and engine, in nats. It grows with staleness.",
    "mismatch_fresh": "The same over responses of the updated weights alone: both must agree.",
    "teacher_gap": "How far the teacher, which is shown the hint, is from the model, in nats.",
    "overlap": "How many of their likeliest tokens the model and the teacher have in common.",
    "answer_tokens": "The length of the answers that it learned from.",
    "staleness_mean": "Versions between sampling a turn and learning from it.",
}


def curves(request: Request, gateway: Gateway, store: Store) -> Facts:
    outcomes = store.judged_turns(limit=MOST_TURNS)
    requests = requests_of(store.all_episodes(limit=COUNTED_REQUESTS))
    versions = store.newest_versions(limit=MOST_VERSIONS)[::-1]
    return {
        "judged": len(outcomes),
        "requests": len(requests),
        "bin": BIN,
        "people": [complaints(requests), approved(versions)],
        "found": outcome_curves(outcomes),
        "metrics": metrics(versions),
    }


def complaints(requests: Sequence[PersonRequest]) -> Markup:
    """The share of requests with a complaint, and its interval (95 %)."""
    points = shares([each.complaint for each in requests])
    around = [(x, wilson_interval(round(share * BIN), BIN)) for x, share in points]
    band = [(x, interval.low, interval.high) for x, interval in around]
    return line(points, title="Requests with a complaint", share=True, band=band)


def approved(versions: Sequence[VersionRecord]) -> Markup:
    """The share of what people had approved that each update kept."""
    kept = []
    for version in versions:
        lost = version.suite.lost.values() if version.suite else ()
        if of := sum(each for _, each in lost):
            kept.append((float(version.number), 1 - sum(gone for gone, _ in lost) / of))
    return line(kept, title="Kept of what people approved", share=True)


def outcome_curves(outcomes: Sequence[Judged]) -> tuple[Markup, Markup, Markup, Markup]:
    """Mean rewards; and the shares of good turns, of bad turns, and of turns with a hint."""
    good, bad = (shares([each.reward == reward for each in outcomes]) for reward in (1, -1))
    mean = [(x, up - down) for (x, up), (_, down) in zip(good, bad, strict=True)]
    hinted = shares([each.hinted for each in outcomes])
    return (
        line(mean, title="Mean reward"),
        line(good, title="Good turns", share=True),
        line(bad, title="Bad turns", share=True),
        line(hinted, title="Turns with a hint", share=True),
    )


def metrics(versions: Sequence[VersionRecord]) -> list[dict[str, Any]]:
    """A curve for each metric of at least two versions."""
    names = {name for version in versions for name in version.metrics}
    ordered = [name for name in FIRST_METRICS if name in names] + sorted(names - set(FIRST_METRICS))
    curves = []
    for name in ordered:
        points = [
            (float(version.number), version.metrics[name]) for version in versions if name in version.metrics
        ]
        if len(points) > 1:
            title = METRIC_TITLES.get(name, plain(name))
            curves.append({"said": METRIC_NOTES.get(name, ""), "svg": line(points, title=title)})
    return curves


def shares(held: Sequence[bool], size: int = BIN) -> list[tuple[float, float]]:
    """The share that holds in each run of `size`, by the number of the run's last turn. The newest run is
    whole; the first turns may be left out."""
    ends = range(len(held), size - 1, -size)
    return [(float(end), sum(held[end - size : end]) / size) for end in ends][::-1]


def line(points: Sequence[Point], *, title: str, share: bool = False, band: Band = ()) -> Markup:
    """A curve with its first and last value. With `share`, the axis runs from 0 to 1 in per cent.

    The area down to the floor is filled, or the `band` of intervals if there is one. Screen readers get a
    sentence; colours come from the page's style. Empty for fewer than two points.
    """
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    if len(finite) < 2:
        return Markup("")
    low, high = (0.0, 1.0) if share else (min(y for _, y in finite), max(y for _, y in finite))
    if low == high:  # a flat curve is in the middle
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
