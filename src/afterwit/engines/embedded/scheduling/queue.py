"""Which request starts next, and which model runner steps. Foreground requests come first.

A foreground request has a client that waits. A background request (the judge's) yields, but is never starved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

BACKGROUND_EVERY = 4
"""Waiting background work gets every 4th turn."""


class Queued(Protocol):
    @property
    def background(self) -> bool:
        """Whether it yields to requests that are not in the background."""


class Prefilling(Queued, Protocol):
    @property
    def read(self) -> int:
        """Prompt tokens read so far, without those that were found again."""


Q = TypeVar("Q", bound=Queued)
P = TypeVar("P", bound=Prefilling)


class RequestQueue(Generic[Q]):
    """Requests that wait for a slot: first come, first served, in two classes.

    `reserve` slots are never given to background requests.
    """

    def __init__(self, *, slots: int, reserve: int) -> None:
        self._slots = slots
        self._background_slots = max(1, slots - reserve)
        self._foreground: deque[Q] = deque()
        self._background: deque[Q] = deque()
        self._passed = 0
        """Foreground requests that started while a background one could have."""

    def __len__(self) -> int:
        return len(self._foreground) + len(self._background)

    @property
    def foreground_waits(self) -> bool:
        """Whether a foreground request waits."""
        return bool(self._foreground)

    def add(self, request: Q) -> None:
        (self._background if request.background else self._foreground).append(request)

    def remove(self, request: Q) -> bool:
        """Take a request out; False if it did not wait here."""
        queue = self._background if request.background else self._foreground
        if request not in queue:
            return False
        queue.remove(request)
        return True

    def next(self, running: Sequence[Q]) -> Q | None:
        """Take out the request that may start beside those running; None if no slot is free for one."""
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


def next_prefill(prompts: Sequence[P], tick: int) -> P:
    """The prompt to read on: the one of which least is read, so that a long one never holds a short one.

    Foreground prompts come first; in every BACKGROUND_EVERY-th tick, background prompts.
    """
    turn = tick % BACKGROUND_EVERY == 0
    preferred = [prompt for prompt in prompts if prompt.background == turn]
    return min(preferred or prompts, key=lambda prompt: prompt.read)


def runs_now(*, background_only: bool, foreground_elsewhere: bool, tick: int) -> bool:
    """Whether a runner steps. While another serves the foreground, background work alone steps rarely."""
    return not (background_only and foreground_elsewhere) or tick % BACKGROUND_EVERY == 0
