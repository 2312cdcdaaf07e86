"""When the next update starts, in words, and the note by which a running learner tells the commands. Pure."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import orjson

from afterwit.core.teaching import Review
from afterwit.learner.schedule import NextBatch
from afterwit.learner.settings import LearnerSettings

CHOOSE = (
    "batch",
    "min_batch",
    "max_wait_s",
    "segments_per_update",
    "batches_per_update",
    "max_staleness",
    "source_share",
    "review",
    "tool_hints",
)
"""The settings that choose the next batch."""


def note_of(settings: LearnerSettings) -> str:
    """The settings by which the next update is chosen."""
    values = asdict(settings)
    return orjson.dumps({name: values[name] for name in CHOOSE}).decode()


def with_note(settings: LearnerSettings, note: str | None) -> LearnerSettings:
    """The settings with what the learner itself says; as they are if it never ran."""
    said = orjson.loads(note or "{}")
    if "review" in said:
        said["review"] = Review(said["review"])
    return replace(settings, **{name: said[name] for name in CHOOSE if name in said})


def next_update(choice: NextBatch, settings: LearnerSettings) -> str:
    """How many turns wait, and what the next update waits for."""
    held = f"; {turns(choice.held)} for more of the same session" if choice.held else ""
    held += f"; {turns(choice.review)} for your review" if choice.review else ""
    if not choice.ready:
        start = f"at {settings.batch}"
        if settings.min_batch < settings.batch:
            start += f", or at {settings.min_batch} after {duration(settings.max_wait_s)}"
        return f"no judged turn waits{held}: the next update starts {start}"
    if choice.ready > settings.batch:
        count = f"{turns(choice.ready)} wait{held}"
    else:
        count = f"{choice.ready} of {turns(settings.batch)} wait{held}"
    if choice.turns:
        return f"{count}: the next update is due"
    return f"{count}: the next update starts {_condition(choice, settings)}"


def _condition(choice: NextBatch, settings: LearnerSettings) -> str:
    left_s = settings.max_wait_s - choice.oldest_s
    if left_s <= 0 or settings.min_batch == settings.batch:
        return f"at {settings.min_batch}"
    condition = "" if choice.ready >= settings.min_batch else f" if {settings.min_batch} wait then"
    return f"at {settings.batch}, or in {duration(left_s)}{condition}"


def duration(seconds: float) -> str:
    """Roughly how long, rounded up: "12 minutes"."""
    if seconds <= 60:
        return "1 minute"
    if seconds <= 7200:
        return f"{math.ceil(seconds / 60)} minutes"
    return f"{math.ceil(seconds / 3600)} hours"


def turns(count: int) -> str:
    """ "3 turns"."""
    return "1 turn" if count == 1 else f"{count} turns"
