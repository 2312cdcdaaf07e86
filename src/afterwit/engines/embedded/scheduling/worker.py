"""The engine's thread: run posted actions, step the model runners, hand out the events they made."""

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
from afterwit.engines.embedded.scheduling.queue import runs_now
from afterwit.engines.embedded.scheduling.runner import ModelRunner

Delivery = tuple[asyncio.Queue[Any], Any]
"""An event and the queue it goes to."""
log = logging.getLogger(__name__)


class EventBuffer:
    """A tick's events by event loop: each loop is woken once a tick, for all its sequences."""

    def __init__(self) -> None:
        self._events: dict[asyncio.AbstractEventLoop, list[Delivery]] = defaultdict(list)

    def put(self, loop: asyncio.AbstractEventLoop, target: asyncio.Queue[Any], event: Any) -> None:
        self._events[loop].append((target, event))

    def flush(self) -> None:
        events, self._events = self._events, defaultdict(list)
        for loop, batch in events.items():
            try:
                loop.call_soon_threadsafe(_deliver, batch)
            except RuntimeError:  # the loop has closed: nobody listens any more
                log.debug("a client's event loop closed before its response ended")


def _deliver(batch: list[Delivery]) -> None:
    for target, event in batch:
        target.put_nowait(event)


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
            except Exception as error:  # for the caller, whatever it is
                future.set_exception(error)
            else:
                future.set_result(None)

        self.post(run)
        return future

    def stop(self, error: Exception) -> Future[None]:
        """End the thread; every request that runs or waits gets `error`."""

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
            except Exception as error:  # not one request's fault: none of them can go on safely
                log.exception("the engine's step failed")
                self._fail(EngineError(f"The engine failed: {error}"))
            self._events.flush()

    def _drain_inbox(self) -> None:
        """Run what was posted; sleep while there is nothing else to do."""
        if self._going and all(runner.idle for runner in self._runners):
            self._inbox.get()()
        while not self._inbox.empty():
            self._inbox.get()()

    def _step(self) -> None:
        self._tick += 1
        foreground = any(runner.has_foreground for runner in self._runners)
        decodes = any(runner.decodes for runner in self._runners)
        for runner in self._runners:
            background_only = not runner.has_foreground
            if runs_now(background_only=background_only, foreground_elsewhere=foreground, tick=self._tick):
                runner.tick(self._tick, others_decode=decodes)

    def _fail(self, error: Exception) -> None:
        for runner in self._runners:
            runner.fail(error)
