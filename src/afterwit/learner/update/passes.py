"""The passes of an update, and which of them this rank runs."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.learner.batch import Item
from afterwit.learner.ranks import Ranks
from afterwit.learner.scoring import MicroBatch, Packing
from afterwit.learner.scoring.packing import NEVER

BACKWARD = 3
"""Work of a token that is trained on, in tokens that a teacher reads."""


def own_passes(items: Sequence[Item], packing: Packing, limit: int, ranks: Ranks) -> list[MicroBatch]:
    """This rank's passes, of at most `limit` tokens; some rank may have none.

    Items that run one sequence each are shared out before they are cut: so no rank has more to do by a whole
    pass. Packed passes are shared out as they are cut: what begins alike stays together.
    """
    rows = [item.student for item in items]
    passes = packing.cut(rows, limit)
    if not passes[0].packed:
        own = ranks.share([_work([item]) for item in items])
        cut = NEVER.cut([rows[index] for index in own], limit)
        return [MicroBatch([own[at] for at in each.chosen], False) for each in cut]
    while len(passes) < min(ranks.size, len(rows)) and limit > 1:  # else some rank would have none
        limit //= 2
        passes = packing.cut(rows, limit)
    mine = ranks.share([_work([items[index] for index in each.chosen]) for each in passes])
    return [passes[index] for index in mine]


def _work(items: Sequence[Item]) -> int:
    read = sum(len(row) for item in items for row in item.teachers)
    return BACKWARD * sum(len(item.student) for item in items) + read
