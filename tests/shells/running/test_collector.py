"""What is there when a process begins to serve is left alone; cycles that come later are found."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from afterwit.running.serve import YOUNG, spare_what_stays


class Node:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector_as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_stays_is_not_looked_at_again() -> None:
    spare_what_stays()
    assert gc.get_freeze_count() > 0


def test_a_cycle_is_found_by_itself_after_so_many_objects() -> None:
    spare_what_stays()
    node = Node()
    gone = weakref.ref(node)
    del node
    kept = [[] for _ in range(YOUNG + 1)]  # type: ignore[var-annotated]
    assert gone() is None
    assert len(kept) > YOUNG
