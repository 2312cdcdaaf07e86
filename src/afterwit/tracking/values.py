"""The numbers of one version, from the store.

A name is `group/value`. `learner` holds the update's own metrics, `time` seconds, `suite` how much the update
kept of what people had approved, `judge` and `people` the verdicts and complaints since the version before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from afterwit.judging.checks import Judged
from afterwit.progress import PersonRequest
from afterwit.promotion.episodes import Episode
from afterwit.promotion.watch import requests_of
from afterwit.store import Store, VersionRecord
from afterwit.version import Origin

SECONDS = "seconds_"
"""The manifest's metrics that are times begin with this."""

MOST = 2_000
"""Judged turns and episodes that are read for one version."""

NEWEST_TURNS = 200
"""Judged turns and episodes whose shares `newest` returns."""

NEWEST_VERSIONS = 32
"""Versions among which `newest` looks for an update."""


def newest_values(store: Store, most: int = MOST) -> tuple[VersionRecord, dict[str, float]] | None:
    """The newest version and its numbers; None if there is only the base.

    The groups `judge` and `people` are left out if more happened since the version before than is read.
    """
    found = store.newest_versions(limit=2)
    if len(found) < 2:
        return None
    version, before = found
    values = of_version(version)
    judged = _between(store.judged_turns(limit=most), before.committed_at, version.committed_at, most)
    episodes = _between(store.all_episodes(limit=most), before.committed_at, version.committed_at, most)
    if judged is not None:
        values |= of_judge(judged)
    if episodes is not None:
        values |= of_people(requests_of(episodes))
    return version, values


Newest = tuple[VersionRecord | None, Mapping[str, float]]


def newest(store: Store) -> Newest:
    """The newest version, served or not, and the values of the newest update, turns and requests. Takes a
    time that does not depend on the store's size."""
    versions = store.newest_versions(limit=NEWEST_VERSIONS)
    update = next((each for each in versions if each.origin is Origin.UPDATE), None)
    values = {} if update is None else of_version(update)
    values |= of_judge(store.judged_turns(limit=NEWEST_TURNS))
    values |= of_people(requests_of(store.all_episodes(limit=NEWEST_TURNS)))
    return versions[0] if versions else None, values


def of_version(version: VersionRecord) -> dict[str, float]:
    """The groups `version`, `learner`, `time` and `suite`. Unmeasured and non-finite values are left out."""
    found = {"version/trained": float(version.trained), "version/replayed": float(version.replayed)}
    if version.restores is not None:
        found["version/restores"] = float(version.restores)
    # the store returns None for what is not finite
    metrics = {n: v for n, v in version.metrics.items() if v is not None and math.isfinite(v)}
    for name, value in metrics.items():
        is_time = name.startswith(SECONDS)
        found[f"time/{name.removeprefix(SECONDS)}" if is_time else f"learner/{name}"] = value
    if metrics.get("samples") and "opd_samples" in metrics:
        found["learner/hint_rate"] = metrics["opd_samples"] / metrics["samples"]
    if metrics:
        found["time/update"] = version.committed_at - version.created
    if version.published_at is not None:
        found["time/publish"] = version.published_at - version.committed_at
    if version.suite is not None:
        lost, of = (sum(column) for column in zip((0, 0), *version.suite.lost.values(), strict=True))
        found |= {"suite/evidence": version.suite.evidence, "suite/items": float(of)}
        if of:
            found["suite/kept"] = 1 - lost / of
    return found


def of_judge(outcomes: Sequence[Judged]) -> dict[str, float]:
    """The group `judge`: the number of judged turns, and their shares."""
    flags = {
        "judge/hint_rate": [each.hinted for each in outcomes],
        "judge/good": [each.reward == 1 for each in outcomes],
        "judge/bad": [each.reward == -1 for each in outcomes],
    }
    return {"judge/turns": float(len(outcomes)), **_shares(flags)}


def of_people(requests: Sequence[PersonRequest]) -> dict[str, float]:
    """The group `people`: the number of requests, and the share that drew a complaint."""
    flags = {"people/complaint_rate": [each.complaint for each in requests]}
    return {"people/requests": float(len(requests)), **_shares(flags)}


def _shares(flags: dict[str, list[bool]]) -> dict[str, float]:
    return {name: sum(each) / len(each) for name, each in flags.items() if each}


Timed = TypeVar("Timed", Judged, Episode)


def _between(found: Sequence[Timed], since: float, until: float, most: int) -> list[Timed] | None:
    """The values with since < at <= until; None if some may not have been read."""
    if len(found) == most and min(each.at for each in found) > since:
        return None
    return [each for each in found if since < each.at <= until]
