"""Which turns a failed update counts against. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.learner.failures import FailureKind
from afterwit.stages.learn.messages import tokens
from afterwit.store import Record


def blamed(records: Sequence[Record], kind: FailureKind) -> list[Record]:
    """No turn if a version found no place, the longest for a lack of memory, all for anything else."""
    if kind in (FailureKind.DISK, FailureKind.VERSIONS):
        return []
    return [longest(records)] if kind is FailureKind.MEMORY else list(records)


def deadly(records: Sequence[Record], max_attempts: int) -> Record | None:
    """The turn to give up after a learner died in their update: the longest that was tried often enough."""
    tried = [record for record in records if record.attempts >= max_attempts]
    return longest(tried) if tried else None


def longest(records: Sequence[Record]) -> Record:
    """The one with the most tokens of prompt and response."""
    return max(records, key=lambda record: tokens(record.sampled_turn))
