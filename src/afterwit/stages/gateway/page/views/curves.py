"""Curves: what people said, over requests; what the judge found, over turns; each update, over versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup
from starlette.requests import Request as HttpRequest

from afterwit.core.progress import Request
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.page import plot
from afterwit.stages.gateway.page.helping import BIN, intervals, shares
from afterwit.stages.gateway.page.views.view import Wanted
from afterwit.stages.gateway.page.words import plain
from afterwit.stages.promotion.requests import requests_of
from afterwit.store import Outcome, Store, VersionRecord

TURNS = 2_000
REQUESTS = 2_000
VERSIONS = 200
FIRST = (
    "loss",
    "rl",
    "opd",
    "combine",
    "reference_kl",
    "entropy",
    "mismatch_mean",
    "mismatch_fresh",
    "teacher_gap",
    "overlap",
    "grad_norm",
)
"""Metrics of an update that come first; the others follow by name."""
NAMES: Mapping[str, str] = {
    "rl": "loss of the rewards",
    "opd": "loss of the hints",
    "combine": "loss of rewards and hints",
    "reference_kl": "KL to the base model",
    "grad_norm": "norm of the gradient",
}
SAID: Mapping[str, str] = {
    "loss": "What the update made smaller, before its last step: all terms, each times its weight.",
    "reference_kl": "How far the model has moved from the one it came as, in nats a token.",
    "entropy": "How open the model is about the next token, in nats. Near 0 it says one thing only.",
    "mismatch_mean": "How far the learner and the engine are apart, in nats. It grows with staleness.",
    "mismatch_fresh": "The same over responses of the updated weights alone: both must agree.",
    "teacher_gap": "How far the teacher, which is shown the hint, is from the model, in nats.",
    "overlap": "Of the likeliest tokens, how many the model and the teacher have in common.",
    "staleness_mean": "Versions between sampling a turn and learning from it.",
}


def view(request: HttpRequest, gateway: Gateway) -> Wanted:
    """All curves."""

    def read(store: Store) -> Mapping[str, Any]:
        outcomes = store.outcomes(limit=TURNS)
        requests = requests_of(store.all_episodes(limit=REQUESTS))
        versions = store.newest_versions(limit=VERSIONS)[::-1]
        return {
            "judged": len(outcomes),
            "requests": len(requests),
            "bin": BIN,
            "people": [complaints(requests), approved(versions)],
            "found": found(outcomes),
            "metrics": metrics(versions),
        }

    return Wanted(template="curves.html", read=read)


def complaints(requests: Sequence[Request]) -> Markup:
    """The share of requests that people complained of, with its interval."""
    points = shares([each.complaint for each in requests])
    return plot.line(points, title="Requests with a complaint", share=True, band=intervals(points))


def approved(versions: Sequence[VersionRecord]) -> Markup:
    """The preference suite: of what people had approved, the share that each update kept."""
    kept = []
    for version in versions:
        lost = version.suite.lost.values() if version.suite else ()
        if of := sum(each for _, each in lost):
            kept.append((float(version.number), 1 - sum(gone for gone, _ in lost) / of))
    return plot.line(kept, title="Kept of what people approved", share=True)


def found(outcomes: Sequence[Outcome]) -> list[Markup]:
    """What the judge found: rewards, and how often there was a hint."""
    good, bad = (shares([each.reward == reward for each in outcomes]) for reward in (1, -1))
    mean = [(x, up - down) for (x, up), (_, down) in zip(good, bad, strict=True)]
    hinted = shares([each.hinted for each in outcomes])
    return [
        plot.line(mean, title="Mean reward"),
        plot.line(good, title="Good turns", share=True),
        plot.line(bad, title="Bad turns", share=True),
        plot.line(hinted, title="Turns with a hint", share=True),
    ]


def metrics(versions: Sequence[VersionRecord]) -> list[dict[str, Any]]:
    """A curve for each metric that at least two versions have."""
    names = {name for version in versions for name in version.metrics}
    ordered = [name for name in FIRST if name in names] + sorted(names - set(FIRST))
    curves = []
    for name in ordered:
        points = [
            (float(version.number), version.metrics[name]) for version in versions if name in version.metrics
        ]
        if len(points) > 1:
            title = NAMES.get(name, plain(name))
            curves.append({"said": SAID.get(name, ""), "svg": plot.line(points, title=title)})
    return curves
