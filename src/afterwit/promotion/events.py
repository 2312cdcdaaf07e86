"""What promotion decided: holds, alarms and confirmations, and what follows from the latest of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from afterwit.adapters import SHARED


class EventKind(StrEnum):
    """What was decided."""

    HOLD = "hold"
    """An update lost too much of what people approved: it became no version."""
    ALARM = "alarm"
    """Too many episodes ended badly: what was learned since the last confirmed version is taken back."""
    CONFIRM = "confirm"
    """Episodes in a row ended well: an alarm falls back to this version."""


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
    """Why, in a sentence."""
    adapter: str = SHARED
    """Whose versions it is about."""


FIRST_BETA, MOST_BETA, FACTOR = 0.1, 0.3, 3.0
"""The brake: the reference KL's weight is at least the first, at most the second, and grows by the factor."""


SLOWER, LEAST_PACE, RECOVERY = 3.0, 1 / 9, 1.25
"""The brake on the step size: a hold or an alarm divides it, down to the least share, and a confirmation
gives some of it back. It recovers slowly, or the rate that ruined would be back after six requests."""


PAUSE_AFTER = 8
"""Holds without a version between them, after which learning pauses until a person resumes it."""


PAUSE_AFTER_ALARMS = 3
"""Alarms without a confirmation between them, after which it pauses too."""


def braked(beta: float, events: Sequence[Event]) -> float:
    """The weight of the reference KL after these events, oldest first: it grows with each hold or alarm since
    the last confirmation, and never falls below the setting."""
    for _ in _since_confirm(events):
        beta = max(beta, min(MOST_BETA, max(FIRST_BETA, FACTOR * beta)))
    return beta


def pace(events: Sequence[Event]) -> float:
    """The share of the step size that these events, oldest first, leave."""
    share = 1.0
    for event in events:
        if event.kind is EventKind.CONFIRM:
            share = min(1.0, share * RECOVERY)
        else:
            share = max(LEAST_PACE, share / SLOWER)
    return share


def confirmed(events: Sequence[Event]) -> int:
    """The version that an alarm falls back to: the last confirmed one, else the base."""
    return next((event.version for event in reversed(events) if event.kind is EventKind.CONFIRM), 0)


def alarms_in_a_row(events: Sequence[Event]) -> int:
    """Alarms since the last confirmation."""
    return sum(event.kind is EventKind.ALARM for event in _since_confirm(events))


def held_in_a_row(events: Sequence[Event]) -> int:
    """Holds at the end of these events whose updates all began with the same version."""
    count = 0
    for event in reversed(events):
        if event.kind is not EventKind.HOLD or event.version != events[-1].version:
            break
        count += 1
    return count


def _since_confirm(events: Sequence[Event]) -> Iterator[Event]:
    for event in reversed(events):
        if event.kind is EventKind.CONFIRM:
            return
        yield event
