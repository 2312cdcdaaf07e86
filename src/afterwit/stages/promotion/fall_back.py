"""To which version a hold or an alarm returns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from afterwit.core.promotion import Event, EventKind, Standing, confirmed
from afterwit.core.version import Origin, Version


def due(
    events: Sequence[Event], versions: Sequence[Version], has_weights: Callable[[int], bool]
) -> tuple[int, Event] | None:
    """The version to return to now, and the event that wants it; None if there is nothing to take back.

    An alarm is settled by a rollback behind the newest version of its time. A hold wants one only if the
    version that its update began with is itself doubtful: else the next update begins there again.
    """
    decided = [event for event in events if event.kind is not EventKind.CONFIRM]
    if not decided or not versions:
        return None
    event, newest = decided[-1], versions[-1]
    by_number = {version.number: version for version in versions}
    if event.kind is EventKind.HOLD:
        if event.version != newest.number or _standing(newest.number, by_number) is Standing.CLEAN:
            return None
        safe = newest.number - 1
    else:
        later = (version for version in versions if version.number > event.version)
        if any(version.origin is Origin.ROLLBACK for version in later):
            return None
        safe = confirmed(events[: events.index(event)])
    target = _clean_until(safe, by_number, has_weights, confirmed_is=confirmed(events))
    return None if target == newest.number or _same_weights(target, newest) else (target, event)


def places_to_return_to(events: Sequence[Event], versions: Sequence[Version]) -> frozenset[int]:
    """The confirmed version, and the newest clean one."""
    by_number = {version.number: version for version in versions}
    clean = [number for number in by_number if _standing(number, by_number) is Standing.CLEAN]
    return frozenset({confirmed(events), max(clean, default=0)})


def _clean_until(
    last: int, versions: Mapping[int, Version], has_weights: Callable[[int], bool], *, confirmed_is: int
) -> int:
    """The newest version up to `last` that is confirmed or clean and can be loaded; else the base."""
    for number in range(last, 0, -1):
        safe = number == confirmed_is or _standing(number, versions) is Standing.CLEAN
        if number in versions and safe and has_weights(number):
            return number
    return 0


def _standing(number: int, versions: Mapping[int, Version]) -> Standing:
    """Of a rollback that of what it restores. The base and a version that was not asked are clean."""
    version = versions.get(number)
    while version is not None and version.restores is not None:
        version = versions.get(version.restores)
    return Standing.CLEAN if version is None or version.suite is None else version.suite.standing


def _same_weights(target: int, newest: Version) -> bool:
    return newest.restores == target
