"""The numbers that hold now, for a program that asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from afterwit.core.version import Origin
from afterwit.stages.promotion.requests import requests_of
from afterwit.stages.tracking.values import of_judge, of_people, of_version
from afterwit.store import Store

TURNS = 200
"""Judged turns and episodes that the shares are of, the newest."""
VERSIONS = 32
"""Versions among which an update is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """What is known now."""

    version: int = 0
    """The newest version, served or not."""
    committed_at: float | None = None
    """When it came, in seconds since the epoch; None: there is none yet."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Of the newest update by `group/name`; of the groups `judge` and `people` of what came last."""


def newest(store: Store) -> Newest:
    """Read in time that the store's size does not decide."""
    versions = store.newest_versions(limit=VERSIONS)
    update = next((each for each in versions if each.origin is Origin.UPDATE), None)
    found = {
        **({} if update is None else of_version(update)),
        **of_judge(store.outcomes(limit=TURNS)),
        **of_people(requests_of(store.all_episodes(limit=TURNS))),
    }
    if not versions:
        return Newest(values=found)
    return Newest(version=versions[0].number, committed_at=versions[0].committed_at, values=found)
