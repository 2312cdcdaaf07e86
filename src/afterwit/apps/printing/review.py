"""The turns that wait for a person's review, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from afterwit.apps.printing.turns import one_line
from afterwit.stages.review import WORDS
from afterwit.store import Record

WIDTH = 200
"""Characters of a response that are shown."""


def described(record: Record) -> Iterator[str]:
    """A turn in a few lines: what would be learned from it, and why that is doubtful."""
    verdict = record.verdict
    reward = 0 if verdict is None else verdict.reward
    yield f"{record.turn.id}  reward {reward:+d}  from {record.turn.scope}"
    yield f"  response  {one_line(record.turn.message, WIDTH)}"
    for hint in () if verdict is None else verdict.hints:
        yield f"  hint      {' '.join(hint.split())}"
    for flag in record.flags:
        yield f"  why       {WORDS[flag]}"


def as_json(record: Record) -> dict[str, Any]:
    """The same for programs."""
    verdict = record.verdict
    return {
        "turn": record.turn.id,
        "session": record.turn.session,
        "source": record.turn.source,
        "reward": None if verdict is None else verdict.reward,
        "hints": [] if verdict is None else list(verdict.hints),
        "flags": [flag.value for flag in record.flags],
        "accepted": record.accepted,
    }
