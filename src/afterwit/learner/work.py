"""What an update costs, and what may be measured beside it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.learner.batch import Item

FORWARD_AND_BACKWARD = 3
"""Work of a token that is trained on, in tokens that are only read."""
SHARE_OF_EFFECTS = 0.1
"""What measuring effects may cost, as a share of the update's work."""
LEAST_OF_EFFECTS = 4096
"""Tokens that are read for it after the smallest update too."""


def work(items: Sequence[Item]) -> int:
    """What one epoch over these items costs, in tokens that are only read."""
    trained = sum(len(item.student) for item in items)
    return FORWARD_AND_BACKWARD * trained + sum(len(row) for item in items for row in item.teachers)


def to_measure(items: Sequence[Item], new: int) -> list[int]:
    """Which of the first `new` items have their effect measured, ascending: those with hints before others,
    while they fit. Items of no store are left out."""
    left = max(LEAST_OF_EFFECTS, int(SHARE_OF_EFFECTS * work(items)))
    own = [index for index in range(new) if items[index].turn is not None]
    chosen = []
    for index in sorted(own, key=lambda index: not items[index].hints):
        if len(items[index].student) <= left:
            left -= len(items[index].student)
            chosen.append(index)
    return sorted(chosen)
