"""Turns that were served while the store was away: kept in a file of the home, recorded when it is back.

A process that is killed meanwhile leaves the file, and the next one records its turns. A turn that the store
has already is not stored twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from prometheus_client import Counter, Gauge
from pydantic import TypeAdapter

from afterwit.binding.bind import Binding
from afterwit.binding.request import ClientSession, read_request
from afterwit.errors import StoreError, StoreUnavailable
from afterwit.gateway.prepare import Bound, bind_request, store_turn
from afterwit.store import Store
from afterwit.text import counted
from afterwit.turn import Conversation, Finish, Turn

log = logging.getLogger("afterwit.gateway")

FILE = "unrecorded-turns.jsonl"
"""Its name in the home."""
MOST_BYTES = 256 * 2**20
"""Of the file, which is removed when no turn waits."""
TRY_AGAIN_S = 0.25
"""Seconds between two attempts to record a turn."""
REMIND_S = 60.0
"""Seconds between two log lines about turns that wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnrecordedTurn:
    """A turn that the store does not have, with all that binds it. It becomes a line of JSON."""

    turn: Turn
    """Without a `binding` its session, parent and kind are not known yet."""
    own: tuple[str, ...]
    """The turns of its response; the first is the request's."""
    asked: Conversation | None
    """The conversation as its client sent it; None: the turn's own."""
    client: ClientSession
    streamed: bool
    follows: str | None
    binding: Binding | None
    now: float
    """When it ended."""

    def line(self) -> bytes:
        return _adapter().dump_json(self) + b"\n"

    @classmethod
    def read(cls, line: bytes) -> UnrecordedTurn:
        """The inverse of `line`. Raises ValueError."""
        return _adapter().validate_json(line)

    def record(self, store: Store, *, delivered: bool) -> bool:
        """Bind and store it, in any number of attempts. Returns whether an earlier turn got its next
        state."""
        turn, own = self.turn, self.own
        incoming = read_request(
            turn=own[0],
            scope=turn.scope,
            conversation=self.asked or turn.conversation,
            client=self.client,
            streamed=self.streamed,
            follows=self.follows,
        )
        if self.binding is None:
            bound = bind_request(store, incoming, own=own, teaches=turn.teaches, now=turn.created)
            place = bound.binding
            turn = replace(turn, session=place.session, parent=place.parent, kind=bound.kind)
        else:
            bound = Bound(incoming=incoming, binding=self.binding, kind=turn.kind, answered=False)
        if not store.scopes([turn.id]):
            store_turn(store, bound, turn, own=own, now=self.now)
        if delivered and turn.finish is not Finish.CLIENT_LEFT:
            store.delivered([turn.id])
        return bound.answered


@cache
def _adapter() -> TypeAdapter[UnrecordedTurn]:
    return TypeAdapter(UnrecordedTurn)


Record = Callable[[bytes, Callable[[], bool]], Awaitable[None]]
"""Records a line; the second argument returns whether its client has the response. Raises StoreUnavailable if
the line has to wait on; it may be recorded again."""


def arrived() -> bool:
    """Of a turn whose process was killed: its line was written just before its response ended."""
    return True


class Backlog:
    """Lines are recorded in order. One that the store refuses is lost, and so are new ones when the file is
    full. If the file cannot be written, they are in memory alone until it can."""

    def __init__(
        self,
        record: Record,
        *,
        path: Path | None,
        failed: Callable[[StoreError], None],
        works: Callable[[], None],
        waiting: Gauge,
        lost: Counter,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Without a `path` all is in memory. `failed` gets each error of the store, `works` is called when a
        turn was recorded."""
        self._record, self._path, self._failed, self._works = record, path, failed, works
        self._gauge, self._counter, self._most_bytes = waiting, lost, most_bytes
        self._lines: deque[tuple[bytes, Callable[[], bool]]] = deque()
        self._unwritten: list[bytes] = []
        self._writing = asyncio.Lock()
        self._bytes = self._lost = 0
        """Bytes since no turn waited; turns lost since then."""
        self._unsafe = path is None
        self.stuck = False
        """The last attempt to record one failed."""
        self._recording: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._lines)

    def __str__(self) -> str:
        lost = f"; {counted(self._lost, 'other')} had to be dropped" if self._lost else ""
        return f"{counted(len(self), 'turn')} in {'memory alone' if self._unsafe else self._path}{lost}"

    def open(self) -> None:
        """Begin to record the turns that a process before this one left."""
        if self._path is None or not self._path.exists():
            return
        data = self._path.read_bytes()
        whole, end, cut = data.rpartition(b"\n")
        if cut:
            log.warning("the last turn in %s is cut, and dropped: its response was not ended", self._path)
            os.truncate(self._path, len(data) - len(cut))
        self._lines.extend((line + end, arrived) for line in whole.split(end) if line)
        self._bytes = len(whole)
        log.warning("%s of the process before this one: recorded now", self)
        self._begin()

    async def add(self, line: bytes, delivered: Callable[[], bool]) -> None:
        """A turn waits. On return it survives a killed process, if the file can be written."""
        if self._lines and self._bytes + len(line) > self._most_bytes:
            self._lose("there is no more room for turns that wait for the store: new ones are not recorded")
            return
        self._lines.append((line, delivered))
        self._bytes += len(line)
        self._unwritten.append(line)
        self._begin()
        async with self._writing:  # those that come meanwhile are written together
            await self._write()

    async def empty(self) -> None:
        """Return when no turn waits."""
        if self._recording is not None:
            await asyncio.wait({self._recording})

    async def close(self, within_s: float) -> None:
        """Give the store so many seconds to come back, then log what becomes of the turns."""
        if self._recording is None:
            return
        log.warning("the store has %g seconds to come back: %s", within_s, self)
        await asyncio.wait({self._recording}, timeout=within_s)
        self._recording.cancel()
        if self._lines and self._unsafe:
            log.error("the store did not come back: %s lost", counted(len(self), "turn"))
        elif self._lines:
            log.warning("the store did not come back: the next start records %s", self)

    def _begin(self) -> None:
        self._gauge.set(len(self))
        if self._recording is None:
            self._recording = asyncio.create_task(self._record_all())

    async def _record_all(self) -> None:
        now = asyncio.get_running_loop().time
        recorded, remind_at = 0, now() + TRY_AGAIN_S
        while self._lines:
            try:
                await self._record(*self._lines[0])
            except StoreUnavailable as error:
                self.stuck = True
                self._failed(error)
                if now() >= remind_at:
                    remind_at = now() + REMIND_S
                    log.warning("%s: %s", self, error)
                await asyncio.sleep(TRY_AGAIN_S)
                continue
            except Exception as error:  # the turn's own, and the others go on
                if isinstance(error, StoreError):
                    self._failed(error)
                self._lose(f"a turn cannot be recorded ({type(error).__name__})")
            else:
                self.stuck = False
                self._works()
                recorded += 1
            self._lines.popleft()
            self._gauge.set(len(self))
            if not self._lines:
                async with self._writing:
                    await self._clear()
        self._recording, self.stuck = None, False
        if recorded:
            lost = f", {self._lost} lost" if self._lost else ""
            log.warning("the store is back: %s recorded that waited%s", counted(recorded, "turn"), lost)
        self._lost = 0

    def _lose(self, why: str) -> None:
        if not self._lost:
            log.error("%s", why)
        self._lost += 1
        self._counter.inc()

    async def _write(self) -> None:
        """Append what is not in the file yet."""
        lines, self._unwritten = self._unwritten, []
        if self._path is None or not lines:
            return
        try:
            await asyncio.to_thread(append, self._path, b"".join(lines))
        except OSError as error:
            self._unwritten = lines + self._unwritten
            if not self._unsafe:
                log.error("turns wait in memory alone, where a killed process loses them: %s", error)
        self._unsafe = bool(self._unwritten)

    async def _clear(self) -> None:
        """Remove the file, unless turns came meanwhile."""
        if self._lines:
            return
        self._unwritten, self._bytes, self._unsafe = [], 0, self._path is None
        if self._path is not None:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                log.error("turns are recorded, and stay in a file too: %s", error)


def append(path: Path, data: bytes) -> None:
    """Write all of it to the disk, or nothing. Raises OSError."""
    with open(path, "ab", 0, opener=partial(os.open, mode=0o600)) as file:
        size, left = os.fstat(file.fileno()).st_size, memoryview(data)
        try:
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise
