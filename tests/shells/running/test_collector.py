"""Limits of a process that serves: what exists when it begins is left alone by the collector, and it may open
as many files as its user may."""

from __future__ import annotations

import gc
import resource
import weakref
from collections.abc import Iterator

import pytest

from afterwit.running.serve import OPEN_FILES, YOUNG, raise_open_files, spare_what_stays


class Node:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(scope="module")
def spared() -> Iterator[int]:
    """How many objects more are spared. They stay so, as the suite's own modules do."""
    thresholds, before = gc.get_threshold(), gc.get_freeze_count()
    spare_what_stays()
    yield gc.get_freeze_count() - before
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


@pytest.mark.parametrize("soft", [256, 1024])
def test_a_server_may_open_as_many_files_as_its_user_may(soft: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        raise_open_files()
        raised, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert (raised, hard) == (min(OPEN_FILES, before[1]), before[1])
        raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (raised, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
