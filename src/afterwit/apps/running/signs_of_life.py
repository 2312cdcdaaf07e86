"""Signs that the learner's process gives its parent, over a pipe: one that hangs gives none."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

EACH_S = 1.0
"""Signs are this far apart at least."""
LOOK_S = 5.0
"""How often the parent looks whether signs came."""


class Giver:
    """The child's end. It never fails and never waits long: a parent that is gone needs no signs."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._given = pipe, 0.0

    def give(self) -> None:
        """Call it often, from the work itself: a thread beside it would go on while the work hangs."""
        if time.monotonic() - self._given < EACH_S:
            return
        self._given = time.monotonic()
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(b".")


class Taker:
    """The parent's end."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.newest = time.monotonic()
        """When the newest sign came; at first, when the child was started."""

    def take(self) -> None:
        """Read what is there."""
        with contextlib.suppress(OSError, EOFError):
            while self._pipe.poll():
                self._pipe.recv_bytes()
                self.newest = time.monotonic()

    async def watch(self, silent_s: float, told: Callable[[bool], Awaitable[None]]) -> None:
        """Say True when no sign has come for `silent_s` seconds, and False when they come again."""
        silent = False
        while True:
            await asyncio.sleep(min(LOOK_S, silent_s))
            self.take()
            if (time.monotonic() - self.newest > silent_s) != silent:
                silent = not silent
                await told(silent)


@contextmanager
def signs() -> Iterator[tuple[Connection, Taker]]:
    """The end that the child is given, and the parent's. Both are closed behind it."""
    parents, childs = multiprocessing.Pipe(duplex=False)
    with parents, childs:
        yield childs, Taker(parents)
