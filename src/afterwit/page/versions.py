"""Versions, and one of them beside the one before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from afterwit.adapters import SHARED
from afterwit.gateway.context import Gateway
from afterwit.page.view import NotFound, Wanted, before, number
from afterwit.promotion.events import Event, EventKind
from afterwit.store import Filter, Store, VersionRecord

PAGE = 40

TURNS = 50

EVENTS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One metric of a version, beside that of the newest update before it."""

    name: str
    before: float | None
    after: float


def view(request: Request, gateway: Gateway) -> Wanted:
    """Versions, the newest first, with what was held back and what was taken back."""
    start, made = before(request), number(request.query_params.get("made", ""))

    def read(store: Store) -> Mapping[str, Any]:
        found = store.newest_versions(before=start, limit=PAGE + 1)
        events = store.events()
        return {
            "versions": found[:PAGE],
            "older": found[PAGE - 1].number if len(found) > PAGE else None,
            "first_page": start is None,
            "served": _served(store, found),
            "adapters": any(version.adapter != SHARED for version in found),
            "confirmed": _confirmed(events),
            "events": [event for event in events if event.kind is not EventKind.CONFIRM][: -EVENTS - 1 : -1],
            "made": made,
        }

    return Wanted(template="versions.html", read=read)


def one(request: Request, gateway: Gateway) -> Wanted:
    """A version: what it learned from, what changed, and what it lost of what people had approved."""
    wanted = number(request.path_params["version"])
    if wanted is None:
        raise NotFound("There is no such version.")

    def read(store: Store) -> Mapping[str, Any]:
        around = store.newest_versions(before=wanted + 1, limit=PAGE)
        if not around or around[0].number != wanted:
            raise NotFound(f"There is no version {wanted}.")
        version = around[0]
        newest, around = store.versions(version.adapter)[-1], _of(version, around)
        return {
            "version": version,
            "newest": newest.number,
            "served": _served(store, [version]),
            "confirmed": wanted in _confirmed(store.events()),
            "changes": changes(version, around[1:]),
            "lost": sorted(version.suite.lost.items()) if version.suite else [],
            "turns": store.turn_lines(Filter(version=wanted), limit=TURNS),
            "effects": {each.turn: each.effect for each in store.learned(version=wanted) if each.effect},
        }

    return Wanted(template="version.html", read=read)


def changes(version: VersionRecord, earlier: Sequence[VersionRecord]) -> list[Change]:
    """The metrics of a version beside those of the newest of the earlier ones that has any."""
    last = next((each.metrics for each in earlier if each.metrics), {})
    return [
        Change(name=name, before=last.get(name), after=value)
        for name, value in sorted(version.metrics.items())
    ]


def _of(version: VersionRecord, around: Sequence[VersionRecord]) -> list[VersionRecord]:
    """Those of the version's adapter."""
    return [each for each in around if each.adapter == version.adapter]


def _served(store: Store, versions: Sequence[VersionRecord]) -> frozenset[int]:
    """The newest version of each of their adapters that was served."""
    return frozenset(store.latest_published(adapter) for adapter in {each.adapter for each in versions})


def _confirmed(events: Sequence[Event]) -> frozenset[int]:
    return frozenset(event.version for event in events if event.kind is EventKind.CONFIRM)
