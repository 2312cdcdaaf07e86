"""Who runs which pass of an update: every turn once, and no rank much more than another."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from afterwit.learning.batch import Behaviour, Item
from afterwit.learning.distributed.group import shares
from afterwit.learning.metrics import FORWARD_AND_BACKWARD
from afterwit.learning.passes import ALONE, Packing, Ranks, Row
from afterwit.learning.update import own_passes

LENGTHS = st.lists(st.integers(2, 60), min_size=1, max_size=30)


class Rank(Ranks):
    """One of several, as far as shares go."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def share(self, work: Sequence[int]) -> list[int]:
        return shares(work, self.size)[self.rank]


def an_item(row: Row) -> Item:
    return Item(
        turn="turn",
        behaviour=Behaviour(forced=(False,), logprobs=(-1.0,)),
        student=row,
        teachers=(),
        hints=(),
        reward=1.0,
        staleness=0,
    )


def items_of(lengths: Sequence[int]) -> list[Item]:
    """Turns that share no beginning."""
    return [
        an_item(Row(prompt=(number,) * (length - 1), response=(1,))) for number, length in enumerate(lengths)
    ]


@given(LENGTHS, st.integers(1, 4), st.integers(60, 300))
def test_ranks_run_every_turn_once_and_differ_by_one_turns_work_at_most(
    lengths: list[int], size: int, limit: int
) -> None:
    items = items_of(lengths)
    passes = [own_passes(items, Packing(True), limit, Rank(rank, size)) for rank in range(size)]
    chosen = [[index for each in mine for index in each.chosen] for mine in passes]
    assert sorted(index for mine in chosen for index in mine) == list(range(len(items)))
    for each in (each for mine in passes for each in mine):
        assert len(each.chosen) * max(lengths[index] for index in each.chosen) <= limit
    work = [FORWARD_AND_BACKWARD * sum(lengths[index] for index in mine) for mine in chosen]
    assert max(work) - min(work) <= FORWARD_AND_BACKWARD * max(lengths)


@given(LENGTHS, st.integers(60, 300))
def test_alone_one_rank_cuts_all_turns_as_they_are(lengths: list[int], limit: int) -> None:
    items = items_of(lengths)
    rows = [item.student for item in items]
    assert own_passes(items, Packing(True), limit, ALONE) == Packing(True).cut(rows, limit)


def test_what_begins_alike_stays_together() -> None:
    """Two sessions of four turns each, which only grow: a rank runs one session, packed."""
    items = [
        an_item(Row(prompt=(session,) * (20 * turn), response=(9,)))
        for session in (1, 2)
        for turn in range(1, 5)
    ]
    passes = [own_passes(items, Packing(True), 19, Rank(rank, 2)) for rank in range(2)]
    assert all(each.packed for mine in passes for each in mine)
    assert sorted(sorted(each.chosen) for mine in passes for each in mine) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [len(mine) for mine in passes] == [1, 1]
