"""The numbers of one version, from what the store keeps. Pure.

A name is `group/value`. `learner` is what the update measured of itself, `time` seconds, `suite` what was
kept of what people had approved, `judge` and `people` what was found and said since the version before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from afterwit.progress import Request
from afterwit.store import Outcome, VersionRecord

SECONDS = "seconds_"
"""The manifest's metrics that are times begin with this."""


def values_of(
    version: VersionRecord,
    *,
    outcomes: Sequence[Outcome] | None = None,
    requests: Sequence[Request] | None = None,
) -> dict[str, float]:
    """What is known of a version, by name; what was not measured is left out, and so is what is not finite.

    `outcomes` and `requests` are of the time since the version before; None: that time is not fully known.
    """
    return {
        **of_version(version),
        **({} if outcomes is None else of_judge(outcomes)),
        **({} if requests is None else of_people(requests)),
    }


def of_version(version: VersionRecord) -> dict[str, float]:
    """The groups `version`, `learner`, `time` and `suite`."""
    metrics = {name: value for name, value in version.metrics.items() if _finite(value)}
    restores = {} if version.restores is None else {"version/restores": float(version.restores)}
    return {
        "version/trained": float(version.trained),
        "version/replayed": float(version.replayed),
        **restores,
        **_learner(metrics),
        **_times(version, metrics),
        **_suite(version),
    }


def of_judge(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The group `judge`: how many of these judged turns there are, and shares of them."""
    shares = {
        "judge/hint_rate": [each.hinted for each in outcomes],
        "judge/good": [each.reward == 1 for each in outcomes],
        "judge/bad": [each.reward == -1 for each in outcomes],
    }
    return {"judge/turns": float(len(outcomes))} | _shares(shares)


def of_people(requests: Sequence[Request]) -> dict[str, float]:
    """The group `people`: how many of these requests there are, and how many drew a complaint."""
    shares = {"people/complaint_rate": [each.complaint for each in requests]}
    return {"people/requests": float(len(requests))} | _shares(shares)


def _finite(value: float | None) -> bool:
    """What is not a finite number comes out of the store as None."""
    return value is not None and math.isfinite(value)


def _learner(metrics: Mapping[str, float]) -> dict[str, float]:
    found = {f"learner/{name}": value for name, value in metrics.items() if not name.startswith(SECONDS)}
    if metrics.get("samples") and "opd_samples" in metrics:
        found["learner/hint_rate"] = metrics["opd_samples"] / metrics["samples"]
    return found


def _times(version: VersionRecord, metrics: Mapping[str, float]) -> dict[str, float]:
    parts = {
        f"time/{name.removeprefix(SECONDS)}": value
        for name, value in metrics.items()
        if name.startswith(SECONDS)
    }
    if metrics:
        parts["time/update"] = version.committed_at - version.created
    if version.published_at is not None:
        parts["time/publish"] = version.published_at - version.committed_at
    return parts


def _suite(version: VersionRecord) -> dict[str, float]:
    if version.suite is None:
        return {}
    lost, of = (sum(column) for column in zip((0, 0), *version.suite.lost.values(), strict=True))
    kept = {"suite/kept": 1 - lost / of} if of else {}
    return {"suite/evidence": version.suite.evidence, "suite/items": float(of), **kept}


def _shares(found: dict[str, list[bool]]) -> dict[str, float]:
    return {name: sum(each) / len(each) for name, each in found.items() if each}
