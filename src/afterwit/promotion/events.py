"""Decisions of promotion (holds, alarms, confirmations) and what follows from them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from afterwit.turn import SHARED
from afterwit.version import Origin, Version

SLOWER, LEAST_SHARE, RECOVERY = 3.0, 1 / 9, 1.25
"""A hold or an alarm divides the step size, down to the least share of the setting; a confirmation multiplies
it. It recovers slowly, or the rate that ruined a version would be back after six requests."""
PULL = 0.15
"""The weight of the reference KL is at least this, times the share of the step size that was taken away."""


class EventKind(StrEnum):
    """The kinds of decisions."""

    HOLD = "hold"
    """An update lost too much of what people approved, and became no version."""
    ALARM = "alarm"
    """Too many episodes ended badly: what was learned since the last confirmed version is taken back."""
    CONFIRM = "confirm"
    """Episodes in a row ended well: later alarms fall back to this version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One decision."""

    kind: EventKind
    at: float
    """Seconds since the epoch."""
    version: int
    """Hold: where the update began. Alarm: the newest one. Confirm: the one that is confirmed."""
    evidence: float
    words: str
    adapter: str = SHARED


def back_off(events: Sequence[Event]) -> tuple[float, float]:
    """The share of the step size that these events, oldest first, leave, and the least weight of the
    reference KL."""
    share = 1.0
    for event in events:
        if event.kind is EventKind.CONFIRM:
            share = min(1.0, share * RECOVERY)
        else:
            share = max(LEAST_SHARE, share / SLOWER)
    return share, PULL * (1 - share)


def confirmed(events: Sequence[Event]) -> int:
    """The last confirmed version, else the base."""
    return next((event.version for event in reversed(events) if event.kind is EventKind.CONFIRM), 0)


def alarms_in_a_row(events: Sequence[Event]) -> int:
    """Alarms since the last confirmation."""
    count = 0
    for event in reversed(events):
        if event.kind is EventKind.CONFIRM:
            break
        count += event.kind is EventKind.ALARM
    return count


def due(
    events: Sequence[Event], versions: Sequence[Version], has_weights: Callable[[int], bool]
) -> tuple[int, Event] | None:
    """The version to return to now, and the event that requires it; None if there is nothing to take back.

    An alarm returns to the version that was confirmed before it. So does a hold if the newest version has
    itself lost something that was approved; else the next update begins there again. A confirmed version
    whose weights are gone gives way to the one confirmed before it, and the first one to the base.
    """
    decided = [event for event in events if event.kind is not EventKind.CONFIRM]
    if not decided or not versions:
        return None
    event, newest = decided[-1], versions[-1]
    if event.kind is EventKind.HOLD:
        if event.version != newest.number or newest.suite is None or not newest.suite.lost_turns:
            return None
    elif any(each.origin is Origin.ROLLBACK for each in versions if each.number > event.version):
        return None
    before = (each for each in reversed(events[: events.index(event)]) if each.kind is EventKind.CONFIRM)
    target = next((each.version for each in before if has_weights(each.version)), 0)
    return None if target in (newest.number, newest.restores) else (target, event)
