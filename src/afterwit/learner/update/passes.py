"""The passes of an update, and which of them this rank runs."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.learner.batch import Item
from afterwit.learner.ranks import Ranks
from afterwit.learner.scoring import MicroBatch, Packing

BACKWARD = 3
"""Work of a token that is trained on, in tokens that a teacher reads."""


def own_passes(items: Sequence[Item], packing: Packing, limit: int, ranks: Ranks) -> list[MicroBatch]:
    """This rank's passes, in the order in which they are cut; some rank may have none."""
    passes = _cut(items, packing, limit, ranks.size)
    mine = ranks.share([_work(items, each) for each in passes])
    return [passes[index] for index in mine]


def _cut(items: Sequence[Item], packing: Packing, limit: int, size: int) -> list[MicroBatch]:
    """Passes of at most `limit` tokens; of fewer, if else some rank would have none."""
    rows = [item.student for item in items]
    passes = packing.cut(rows, limit)
    while len(passes) < min(size, len(rows)) and limit > 1:
        limit //= 2
        passes = packing.cut(rows, limit)
    return passes


def _work(items: Sequence[Item], passed: MicroBatch) -> int:
    chosen = [items[index] for index in passed.chosen]
    read = sum(len(row) for item in chosen for row in item.teachers)
    return BACKWARD * sum(len(item.student) for item in chosen) + read
