"""The overview and the curves: is it learning, what waits, what happened; and small line plots as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup
from starlette.requests import Request

from afterwit.gateway.context import Gateway
from afterwit.gateway.status import stages_of
from afterwit.judging.checks import Judged
from afterwit.lifecycle import Reason, ReasonClass, State
from afterwit.page.html import plain
from afterwit.page.lists import COUNTED_REQUESTS, Facts
from afterwit.progress import PersonRequest, wilson_interval
from afterwit.promotion.episodes import Event
from afterwit.promotion.watch import requests_of
from afterwit.store import Counts, Pause, Status, Store, VersionRecord
from afterwit.text import counted
from afterwit.version import Origin

OVERVIEW_TURNS, OVERVIEW_VERSIONS, OVERVIEW_LINES = 1_000, 50, 40
CURVE_TURNS, CURVE_VERSIONS = 2_000, 200
"""The newest turns, or requests, versions and lines that each view reads."""
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


def overview(request: Request, gateway: Gateway, store: Store) -> Facts:
    """Whether it learns, what waits, what was not learned from, and what happened."""
    counts, outcomes = store.counts(), store.judged_turns(limit=OVERVIEW_TURNS)
    versions = store.newest_versions(limit=OVERVIEW_VERSIONS)
    pause = store.paused()
    stages = stages_of(gateway, store.statuses())
    newest = requests_of(store.all_episodes(limit=OVERVIEW_TURNS))
    _, good, bad, _ = found(outcomes)
    return {
        "learning": learning(versions, counts, stages, pause),
        "pause": pause,
        "complaints": complaints(newest),
        "bad": bad,
        "good": good,
        "waits": [
            (state, counts.states.get(state, 0)) for state in (State.OPEN, State.ANSWERED, State.JUDGED)
        ],
        "refused": refused(counts),
        "stages": stages,
        "lines": happened(versions, store.events(), limit=OVERVIEW_LINES),
    }


def learning(
    versions: Sequence[VersionRecord], counts: Counts, stages: Sequence[Status], pause: Pause | None
) -> Mapping[str, Any]:
    """Whether it learns, its last update, and the status of the stage with a problem, else the learner's."""
    newest = {status.stage: status for status in sorted(stages, key=lambda status: status.at)}
    learner, judge = newest.get("learn"), newest.get("judge")
    fault = next((stage for stage in (learner, judge) if stage is not None and not stage.ok), None)
    last = next((version for version in versions if version.origin is Origin.UPDATE), None)
    if pause is not None:
        sentence = "No: learning is paused."
    elif fault is not None and fault is learner:
        sentence = "Not now: the learner reports a problem."
    elif fault is not None:
        sentence = (
            "Only from evidence that needs no judge." if last else "Not yet, and the judge has a problem."
        )
    elif last is None:
        sentence = "Not yet: nothing has been learned so far."
    else:
        sentence = f"Yes: {counted(counts.states.get(State.TRAINED, 0), 'turn')} so far."
    return {"sentence": sentence, "ok": fault is None, "says": fault or learner, "last": last}


def refused(counts: Counts) -> list[tuple[str, list[tuple[Reason, int]]]]:
    """Reasons of turns that were not learned from, by their class, the most frequent first."""
    titles = {
        ReasonClass.FAILED: "Something failed",
        ReasonClass.NOTHING_TO_LEARN: "There was nothing to learn",
        ReasonClass.NOT_TRAINABLE: "It cannot train",
    }
    ordered = sorted(counts.reasons.items(), key=lambda pair: -pair[1])
    classes = [(title, [pair for pair in ordered if pair[0].kind is kind]) for kind, title in titles.items()]
    return [(title, reasons) for title, reasons in classes if reasons]


def curves(request: Request, gateway: Gateway, store: Store) -> Facts:
    outcomes = store.judged_turns(limit=CURVE_TURNS)
    requests = requests_of(store.all_episodes(limit=COUNTED_REQUESTS))
    versions = store.newest_versions(limit=CURVE_VERSIONS)[::-1]
    return {
        "judged": len(outcomes),
        "requests": len(requests),
        "bin": BIN,
        "people": [complaints(requests), approved(versions)],
        "found": found(outcomes),
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


def found(outcomes: Sequence[Judged]) -> tuple[Markup, Markup, Markup, Markup]:
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


class Line(NamedTuple):
    """One thing that happened. `kind` is a class of the page's style."""

    at: float
    kind: str
    words: str
    version: int


def happened(versions: Sequence[VersionRecord], events: Sequence[Event], *, limit: int) -> list[Line]:
    """Updates, publications, holds and alarms, the newest first."""
    found = []
    for event in events[-limit:]:
        words = event.words[:1].upper() + event.words[1:] + "."
        found.append(Line(event.at, event.kind.value, words, event.version))
    for version in versions:
        number, origin = version.number, version.origin
        if origin is Origin.BASE:
            continue
        kind, words = origin.value, "is earlier updates, run again without a forgotten conversation"
        if origin is Origin.ROLLBACK:
            words = f"takes learning back: it has the weights of version {version.restores}"
        elif origin is Origin.UPDATE:
            again = f", and from {version.replayed} again" if version.replayed else ""
            kind, words = "learned", f"learned from {counted(version.trained, 'turn')}{again}"
        found.append(Line(version.created, kind, f"Version {number} {words}.", number))
        if version.published_at is not None:
            found.append(Line(version.published_at, "served", f"Version {number} is served.", number))
    return sorted(found, key=lambda each: each.at, reverse=True)[:limit]


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
