"""Which turns' traces are sent, and how far that has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import orjson

from afterwit.stages.tracking.history import SETTLE_S
from afterwit.store import AsyncStore, EndedTurn, Store

NOTE = "tracking.traces"
AT_ONCE = 200
"""Turns whose traces are sent together."""


class TraceSink(Protocol):
    """Where traces go."""

    def send(self, turns: Sequence[EndedTurn]) -> None:
        """All of them, or it raises."""
        ...

    def close(self) -> None: ...


class Traces:
    """Sends the trace of each turn that ended, a minute later, so that its version is served by then.

    It begins with turns that end from its first start on.
    """

    def __init__(self, store: AsyncStore, opened: Callable[[], TraceSink]) -> None:
        self._store, self._opened = store, opened
        self._sink: TraceSink | None = None

    async def step(self, now: float) -> bool:
        """Send the next ones; whether there were any. What the sink raises leaves the place where it is."""
        after = await self._store.call(lambda store: _place(store, now))
        turns = await self._store.call(
            lambda store: store.ended_turns(after=after, until=now - SETTLE_S, limit=AT_ONCE)
        )
        if not turns:
            return False
        await asyncio.to_thread(self._send, turns)
        last = turns[-1].ended, turns[-1].seq
        await self._store.call(lambda store: store.set_note(NOTE, orjson.dumps(last).decode()))
        return True

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _send(self, turns: Sequence[EndedTurn]) -> None:
        if self._sink is None:
            self._sink = self._opened()
        self._sink.send(turns)


def _place(store: Store, now: float) -> tuple[float, int]:
    """The time and `seq` of the last turn that was sent; at first, now."""
    text = store.note(NOTE)
    if text is None:
        store.set_note(NOTE, orjson.dumps((now, 0)).decode())
        return now, 0
    at, seq = orjson.loads(text)
    return at, seq
