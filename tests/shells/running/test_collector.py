"""Objects that exist when serving begins are left alone; later cycles are collected."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from afterwit.running.serve import YOUNG, spare_what_stays


class Node:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(scope="module")
def spared() -> Iterator[int]:
    """How many objects more are spared."""
    thresholds, before = gc.get_threshold(), gc.get_freeze_count()
    spare_what_stays()
    yield gc.get_freeze_count() - before
    gc.unfreeze()
    gc.collect()
    gc.freeze()  # as it was: the suite's own modules stay too
    gc.set_threshold(*thresholds)


def test_what_stays_is_not_looked_at_again(spared: int) -> None:
    assert spared > 0


def test_a_cycle_is_found_by_itself_after_so_many_objects(spared: int) -> None:
    node = Node()
    gone = weakref.ref(node)
    del node
    kept = [[] for _ in range(YOUNG + 1)]  # type: ignore[var-annotated]
    assert gone() is None
    assert len(kept) > YOUNG
