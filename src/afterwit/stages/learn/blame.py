"""Which turns a failed update counts against. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.learner.failures import FailureKind
from afterwit.stages.learn.messages import tokens
from afterwit.store import Record

ELSEWHERE = (FailureKind.DISK, FailureKind.VERSIONS, FailureKind.TEACHER)
"""Failures that last whichever turns are in the batch: no disk, no place for versions, no teacher."""


def blamed(records: Sequence[Record], kind: FailureKind) -> list[Record]:
    """No turn if what is missing is elsewhere, the longest for a lack of memory, all for anything else."""
    if kind in ELSEWHERE:
        return []
    return [longest(records)] if kind is FailureKind.MEMORY else list(records)


def deadly(records: Sequence[Record], max_attempts: int) -> Record | None:
    """The turn to give up after a learner died in their update: the longest that was tried often enough."""
    tried = [record for record in records if record.attempts >= max_attempts]
    return longest(tried) if tried else None


def longest(records: Sequence[Record]) -> Record:
    """The one with the most tokens of prompt and response."""
    return max(records, key=lambda record: tokens(record.sampled_turn))
