"""How often a server may break off one request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from afterwit.core.errors import EngineUnavailable

MOST_INTERRUPTIONS = 2
"""A request that brings its server down must not do so for ever."""


class Interruptions:
    """The interruptions of one request so far."""

    def __init__(self, check_open: Callable[[], None]) -> None:
        """`check_open` raises if the engine itself was closed: then nothing is tried again."""
        self._check_open = check_open
        self._count = 0

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Around one attempt, in a loop. EngineUnavailable ends it; one too many is raised."""
        try:
            yield
        except EngineUnavailable:
            self._check_open()
            self._count += 1
            if self._count > MOST_INTERRUPTIONS:
                raise
