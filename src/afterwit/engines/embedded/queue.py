"""The waiting line and its turns: people's requests first, background ones late but never not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

BACKGROUND_EVERY = 4
"""Background work that waits gets its turn after this many turns of people's."""


class Queued(Protocol):
    @property
    def background(self) -> bool:
        """Whether it yields to those that are not."""


W = TypeVar("W", bound=Queued)


class RequestQueue(Generic[W]):
    """First come, first served, in two queues. `reserve` slots are never given to background requests."""

    def __init__(self, *, slots: int, reserve: int) -> None:
        self._slots = slots
        self._background_slots = max(1, slots - reserve)
        self._foreground: deque[W] = deque()
        self._background: deque[W] = deque()
        self._passed = 0

    def __len__(self) -> int:
        return len(self._foreground) + len(self._background)

    @property
    def foreground_waits(self) -> bool:
        """Whether a person waits."""
        return bool(self._foreground)

    def add(self, request: W) -> None:
        (self._background if request.background else self._foreground).append(request)

    def remove(self, request: W) -> bool:
        """Whether it was in line."""
        queue = self._background if request.background else self._foreground
        if request not in queue:
            return False
        queue.remove(request)
        return True

    def next(self, running: Sequence[W]) -> W | None:
        """Take the next one that may start beside those running; None where no slot is free for it."""
        if len(running) >= self._slots:
            return None
        in_background = sum(other.background for other in running)
        admissible = bool(self._background) and in_background < self._background_slots
        if self._foreground and not (admissible and self._passed >= BACKGROUND_EVERY):
            self._passed += admissible
            return self._foreground.popleft()
        if not admissible:
            return None
        self._passed = 0
        return self._background.popleft()


def next_prefill(uncached: Sequence[W], tick: int) -> W:
    """The prompt to read on: the first foreground one; in every BACKGROUND_EVERY-th tick a background one."""
    turn = tick % BACKGROUND_EVERY == 0
    return next((request for request in uncached if request.background == turn), uncached[0])


def runs_now(*, background_only: bool, foreground_elsewhere: bool, tick: int) -> bool:
    """Whether a runner steps: one of background work alone only now and then while people are served."""
    return not (background_only and foreground_elsewhere) or tick % BACKGROUND_EVERY == 0
