"""The engine's thread: carry out what was asked, step the lanes, hand out what they made."""

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
from afterwit.engines.embedded.queue import in_turn
from afterwit.engines.embedded.runner import Lane

Letter = tuple[asyncio.Queue[Any], Any]
log = logging.getLogger(__name__)


class Outbox:
    """What a tick made, by event loop: each loop is woken once a tick, whatever the number of its streams."""

    def __init__(self) -> None:
        self._letters: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Queue[Any], Any]]] = defaultdict(
            list
        )

    def put(self, loop: asyncio.AbstractEventLoop, box: asyncio.Queue[Any], letter: Any) -> None:
        self._letters[loop].append((box, letter))

    def flush(self) -> None:
        letters, self._letters = self._letters, defaultdict(list)
        for loop, batch in letters.items():
            try:
                loop.call_soon_threadsafe(_deliver, batch)
            except RuntimeError:  # the loop has closed: nobody listens any more
                log.debug("a client's event loop closed before its response ended")


def _deliver(batch: list[Letter]) -> None:
    for box, letter in batch:
        box.put_nowait(letter)


class Worker(threading.Thread):
    """Steps the lanes until `stop`. Actions posted from other threads run between two decode steps."""

    def __init__(self, lanes: tuple[Lane, ...], outbox: Outbox) -> None:
        super().__init__(name="afterwit-engine", daemon=True)
        self._lanes = lanes
        self._outbox = outbox
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

    def stop(self, farewell: Exception) -> Future[None]:
        """End: whoever is running or waiting gets `farewell`."""

        def end() -> None:
            self._going = False
            self._fail(farewell)

        return self.call(end)

    @torch.inference_mode()
    def run(self) -> None:
        while self._going:
            try:
                self._obey()
                self._step()
            except Exception as error:  # ours, not one request's: none of them can be trusted to go on
                log.exception("the engine's step failed")
                self._fail(EngineError(f"The engine failed: {error}"))
            self._outbox.flush()

    def _obey(self) -> None:
        """Carry out what was posted; sleep where there is nothing else to do."""
        if self._going and all(lane.idle for lane in self._lanes):
            self._inbox.get()()
        while not self._inbox.empty():
            self._inbox.get()()

    def _step(self) -> None:
        self._tick += 1
        people = any(lane.serves_people for lane in self._lanes)
        for lane in self._lanes:
            if in_turn(background_only=not lane.serves_people, people_elsewhere=people, tick=self._tick):
                lane.tick(self._tick)

    def _fail(self, error: Exception) -> None:
        for lane in self._lanes:
            lane.fail(error)
