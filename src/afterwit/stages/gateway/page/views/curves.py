"""Curves: what the judge found, over turns; the numbers of each update, over versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request

from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.page import plot
from afterwit.stages.gateway.page.helping import BIN, shares
from afterwit.stages.gateway.page.views.view import Wanted
from afterwit.stages.gateway.page.words import plain
from afterwit.store import Store, VersionRecord

TURNS = 2_000
VERSIONS = 200
FIRST = ("loss", "reference_kl", "mismatch_mean", "mismatch_fresh", "teacher_gap", "overlap", "gradient_norm")
"""Metrics of an update that come first; the others follow by name."""
SAID: Mapping[str, str] = {
    "loss": "What the update made smaller, before its last step.",
    "mismatch_mean": "How far the learner and the engine are apart, in nats. It grows with staleness.",
    "mismatch_fresh": "The same over responses of the updated weights alone: both must agree.",
    "teacher_gap": "How far the teacher, which is shown the hint, is from the model, in nats.",
    "overlap": "Share of the likeliest tokens that model and teacher have in common.",
    "staleness_mean": "Versions between sampling a turn and learning from it.",
}


def view(request: Request, gateway: Gateway) -> Wanted:
    """All curves."""

    def read(store: Store) -> Mapping[str, Any]:
        outcomes = store.outcomes(limit=TURNS)
        return {
            "judged": len(outcomes),
            "bin": BIN,
            "found": [
                plot.line(shares([each.reward == 1 for each in outcomes]), title="Good turns", share=True),
                plot.line(shares([each.reward == -1 for each in outcomes]), title="Bad turns", share=True),
                plot.line(shares([each.hinted for each in outcomes]), title="Turns with a hint", share=True),
            ],
            "metrics": _metrics(store.newest_versions(limit=VERSIONS)[::-1]),
        }

    return Wanted(template="curves.html", read=read)


def _metrics(versions: Sequence[VersionRecord]) -> list[dict[str, Any]]:
    """A curve for each metric that at least two versions have."""
    names = {name for version in versions for name in version.metrics}
    ordered = [name for name in FIRST if name in names] + sorted(names - set(FIRST))
    curves = []
    for name in ordered:
        points = [
            (float(version.number), version.metrics[name]) for version in versions if name in version.metrics
        ]
        if len(points) > 1:
            curves.append({"said": SAID.get(name, ""), "svg": plot.line(points, title=plain(name))})
    return curves
