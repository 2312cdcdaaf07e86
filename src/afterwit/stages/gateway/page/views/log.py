"""The log: updates, what was served, held back, taken back and confirmed, the newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from afterwit.core.promotion import Event, EventKind
from afterwit.core.version import Origin
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.page.views.view import Wanted
from afterwit.stages.gateway.page.words import count
from afterwit.store import Store, VersionRecord

LINES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that happened."""

    at: float
    kind: str
    """A class of the page's style: learned, served, hold, alarm, confirm, rollback."""
    words: str
    version: int


def view(request: Request, gateway: Gateway) -> Wanted:
    """The newest lines."""

    def read(store: Store) -> Mapping[str, Any]:
        return {"lines": lines(store.newest_versions(limit=LINES), store.events(), limit=LINES)}

    return Wanted(template="log.html", read=read)


def lines(versions: Sequence[VersionRecord], events: Sequence[Event], *, limit: int) -> list[Line]:
    """What happened, the newest first."""
    found = [_decided(event) for event in events[-limit:]]
    for version in versions:
        if version.origin is Origin.BASE:
            continue
        found.append(_made(version))
        if version.published_at is not None:
            words = f"Version {version.number} is served."
            found.append(Line(at=version.published_at, kind="served", words=words, version=version.number))
    return sorted(found, key=lambda each: each.at, reverse=True)[:limit]


def _made(version: VersionRecord) -> Line:
    if version.origin is Origin.ROLLBACK:
        words = (
            f"Version {version.number} takes learning back: it has the weights of version {version.restores}."
        )
        return Line(at=version.created, kind="rollback", words=words, version=version.number)
    if version.origin is Origin.REPLAY:
        words = f"Version {version.number} is earlier updates, run again without a forgotten conversation."
        return Line(at=version.created, kind="replay", words=words, version=version.number)
    again = f", and from {version.replayed} again" if version.replayed else ""
    words = f"Version {version.number} learned from {count(version.trained, 'turn')}{again}."
    return Line(at=version.created, kind="learned", words=words, version=version.number)


def _decided(event: Event) -> Line:
    words = event.words[:1].upper() + event.words[1:] + "."
    return Line(at=event.at, kind=str(EventKind(event.kind)), words=words, version=event.version)
