"""The versions that are new, each with its numbers, read from the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeVar

from afterwit.stages.promotion.requests import requests_of
from afterwit.stages.tracking.values import values_of
from afterwit.store import Store, VersionRecord

NEWEST = 2_000
"""Judged turns and episodes that are looked at: of the time before them nothing is said."""
AT_ONCE = 64
"""Versions that one look gives at most."""
SETTLE_S = 60.0
"""Seconds after which a version that is not served counts as one that will not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A version as trackers are told of it."""

    version: int
    at: float
    """When it was committed, in seconds since the epoch."""
    values: dict[str, float]


class _Timed(Protocol):
    @property
    def at(self) -> float: ...


Timed = TypeVar("Timed", bound=_Timed)


def news(store: Store, *, after: int, now: float) -> list[Told]:
    """The oldest versions behind number `after`, the base left out; none that may be served in a moment.

    If the newest version is older than `after`, those behind it were lost with their checkpoints.
    """
    newest = store.newest_versions(limit=1)
    if not newest or newest[0].number <= after:
        return []
    chain = store.versions()
    return _told(store, [pair for pair in pairwise(chain) if pair[1].number > after][:AT_ONCE], now)


def _told(store: Store, pairs: Sequence[tuple[VersionRecord, VersionRecord]], now: float) -> list[Told]:
    outcomes, episodes = store.outcomes(limit=NEWEST), store.all_episodes(limit=NEWEST)
    found = []
    for before, version in pairs:
        if version.published_at is None and now - version.committed_at < SETTLE_S:
            break
        since, until = before.committed_at, version.committed_at
        ended = _between(episodes, since, until)
        values = values_of(
            version,
            outcomes=_between(outcomes, since, until),
            requests=None if ended is None else requests_of(ended),
        )
        found.append(Told(version=version.number, at=until, values=values))
    return found


def _between(found: Sequence[Timed], since: float, until: float) -> list[Timed] | None:
    """What happened in that time, its end included; None if some of it may not have been read."""
    if len(found) == NEWEST and min(each.at for each in found) > since:
        return None
    return [each for each in found if since < each.at <= until]
