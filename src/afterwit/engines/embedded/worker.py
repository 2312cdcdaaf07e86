"""The engine's thread: carry out what was asked, step the runners, hand out what they made."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch

from afterwit.core.errors import EngineError
from afterwit.engines.embedded.queue import runs_now
from afterwit.engines.embedded.runner import ModelRunner

Event = tuple[asyncio.Queue[Any], Any]
log = logging.getLogger(__name__)


class EventBuffer:
    """What a tick made, by event loop: each loop is woken once a tick, for all its sequences."""

    def __init__(self) -> None:
        self._events: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Queue[Any], Any]]] = defaultdict(
            list
        )

    def put(self, loop: asyncio.AbstractEventLoop, box: asyncio.Queue[Any], event: Any) -> None:
        self._events[loop].append((box, event))

    def flush(self) -> None:
        events, self._events = self._events, defaultdict(list)
        for loop, batch in events.items():
            try:
                loop.call_soon_threadsafe(_deliver, batch)
            except RuntimeError:  # the loop has closed: nobody listens any more
                log.debug("a client's event loop closed before its response ended")


def _deliver(batch: list[Event]) -> None:
    for box, event in batch:
        box.put_nowait(event)


class Worker(threading.Thread):
    """Steps the runners until `stop`. Actions posted from other threads run between two decode steps."""

    def __init__(self, runners: tuple[ModelRunner, ...], events: EventBuffer) -> None:
        super().__init__(name="afterwit-engine", daemon=True)
        self._runners = runners
        self._events = events
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._going = True
        self._tick = 0

    def post(self, action: Callable[[], None]) -> None:
        """Run `action` before the next decode step."""
        self._inbox.put(action)

    def call(self, action: Callable[[], None]) -> Future[None]:
        """As `post`; the future is done once the action has run."""
        future: Future[None] = Future()

        def run() -> None:
            try:
                action()
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(None)

        self.post(run)
        return future

    def stop(self, error: Exception) -> Future[None]:
        """End: whoever is running or waiting gets `error`."""

        def end() -> None:
            self._going = False
            self._fail(error)

        return self.call(end)

    @torch.inference_mode()
    def run(self) -> None:
        while self._going:
            try:
                self._drain_inbox()
                self._step()
            except Exception as error:  # ours, not one request's: none of them can be trusted to go on
                log.exception("the engine's step failed")
                self._fail(EngineError(f"The engine failed: {error}"))
            self._events.flush()

    def _drain_inbox(self) -> None:
        """Carry out what was posted; sleep where there is nothing else to do."""
        if self._going and all(runner.idle for runner in self._runners):
            self._inbox.get()()
        while not self._inbox.empty():
            self._inbox.get()()

    def _step(self) -> None:
        self._tick += 1
        people = any(runner.has_foreground for runner in self._runners)
        for runner in self._runners:
            if runs_now(
                background_only=not runner.has_foreground, foreground_elsewhere=people, tick=self._tick
            ):
                runner.tick(self._tick)

    def _fail(self, error: Exception) -> None:
        for runner in self._runners:
            runner.fail(error)
