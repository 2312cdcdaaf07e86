"""The waiting line and its turns: people's requests first, background ones late but never not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

PATIENCE = 4
"""Background work that waits gets its turn after this many turns of people's."""


class Waiter(Protocol):
    @property
    def background(self) -> bool:
        """Whether it yields to those that are not."""


W = TypeVar("W", bound=Waiter)


class Line(Generic[W]):
    """First come, first served, in two queues. `reserve` slots are never given to background requests."""

    def __init__(self, *, slots: int, reserve: int) -> None:
        self._slots = slots
        self._background_slots = max(1, slots - reserve)
        self._people: deque[W] = deque()
        self._background: deque[W] = deque()
        self._passed = 0

    def __len__(self) -> int:
        return len(self._people) + len(self._background)

    @property
    def people(self) -> bool:
        """Whether a person waits."""
        return bool(self._people)

    def add(self, waiter: W) -> None:
        (self._background if waiter.background else self._people).append(waiter)

    def remove(self, waiter: W) -> bool:
        """Whether it was in line."""
        queue = self._background if waiter.background else self._people
        if waiter not in queue:
            return False
        queue.remove(waiter)
        return True

    def next(self, running: Sequence[W]) -> W | None:
        """Take the next one that may start beside those running; None where no slot is free for it."""
        if len(running) >= self._slots:
            return None
        in_background = sum(other.background for other in running)
        admissible = bool(self._background) and in_background < self._background_slots
        if self._people and not (admissible and self._passed >= PATIENCE):
            self._passed += admissible
            return self._people.popleft()
        if not admissible:
            return None
        self._passed = 0
        return self._background.popleft()


def reads_next(unread: Sequence[W], tick: int) -> W:
    """Which prompt is read on: the first of people's, in every PATIENCE-th tick the first of background's."""
    turn = tick % PATIENCE == 0
    return next((waiter for waiter in unread if waiter.background == turn), unread[0])


def in_turn(*, background_only: bool, people_elsewhere: bool, tick: int) -> bool:
    """Whether a lane steps: one of background work alone only now and then while people are served."""
    return not (background_only and people_elsewhere) or tick % PATIENCE == 0
