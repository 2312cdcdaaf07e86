"""The versions that are new, each with its numbers, read from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol, TypeVar

from afterwit.promotion.watch import requests_of
from afterwit.store import Store, VersionRecord
from afterwit.tracking.values import of_judge, of_people, of_version, values_of
from afterwit.version import Origin

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
    return _told_versions(store, [pair for pair in pairwise(chain) if pair[1].number > after][:AT_ONCE], now)


def _told_versions(
    store: Store, pairs: Sequence[tuple[VersionRecord, VersionRecord]], now: float
) -> list[Told]:
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
