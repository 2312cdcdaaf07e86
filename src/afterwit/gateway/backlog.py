"""Turns that were served while the store was away: kept in a file of the home, recorded when it is back.

A process that is killed meanwhile leaves the file, and the next one records its turns. A turn that the store
has already is not stored twice. One that the file cannot keep either, as on a full disk, is not served: its
response ends in an error, and so do new requests until there is room.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from time import monotonic

from prometheus_client import Counter, Gauge
from pydantic import TypeAdapter

from afterwit.binding.bind import Binding
from afterwit.binding.request import ClientSession, read_request
from afterwit.errors import RequestError, StoreError, StoreUnavailable
from afterwit.gateway.prepare import Bound, bind_request, store_turn
from afterwit.store import Store
from afterwit.text import counted
from afterwit.turn import Conversation, Finish, Turn

log = logging.getLogger("afterwit.gateway")

FILE = "unrecorded-turns.jsonl"
MOST_BYTES = 256 * 2**20
"""Of the file, which is removed when no turn waits. New requests are refused when it is as large."""
REFUSED_S = 10.0
"""Seconds for which requests are refused when the file cannot be written. Then one finds out."""
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


Line = tuple[bytes, Callable[[], bool]]
"""An unrecorded turn, and what returns whether its client has the response."""
RecordLine = Callable[[bytes, Callable[[], bool]], Awaitable[None]]
"""Records a line. Raises StoreUnavailable if it has to wait on; it may be recorded again."""

UNKEPT = "The response cannot be recorded, so it is not sent; the server's log has the reason."


class Backlog:
    """Lines are recorded in order. One that the store refuses is lost."""

    def __init__(
        self,
        record: RecordLine,
        *,
        path: Path | None,
        failed: Callable[[StoreError], None],
        works: Callable[[], object],
        waiting: Gauge,
        lost: Counter,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Without a `path` all is in memory. `failed` gets each error of the store, `works` is called when a
        turn was recorded."""
        self._record, self._path, self._failed, self._works = record, path, failed, works
        self._gauge, self._counter, self._most_bytes, self._clock = waiting, lost, most_bytes, clock
        self._lines: deque[Line] = deque()
        self._unwritten: list[Line] = []
        self._writing = asyncio.Lock()
        self._bytes = self._lost = 0
        """Bytes since no turn waited; turns lost since then."""
        self._fault: str | None = None
        """Why the file cannot be written."""
        self._try_at = -REMIND_S
        """When a request may find out whether it still cannot, by the clock."""
        self.stuck = False
        """The last attempt to record one failed."""
        self._recording: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._lines)

    def __str__(self) -> str:
        return f"{counted(len(self), 'turn')} in {self._path or 'memory alone'}"

    @property
    def full(self) -> str | None:
        """Why no further turn can be kept; None if it can, or a request should find out."""
        if self._bytes >= self._most_bytes:
            return f"{self} are {self._bytes // 2**20} MB, and no more are kept"
        return self._fault if self._clock() < self._try_at else None

    def check(self) -> None:
        """Raise 503 if the turn of a new request cannot be kept."""
        if self.full is not None:
            raise RequestError(503, "store_unavailable", UNKEPT)

    def open(self) -> None:
        """Begin to record the turns that a process before this one left."""
        if self._path is None or not self._path.exists():
            return
        lines = BytesIO(self._path.read_bytes()).readlines()
        if lines and not lines[-1].endswith(b"\n"):
            log.warning("the last turn in %s is cut, and dropped: its response was not ended", self._path)
            lines.pop()
        if not lines:  # a full disk, or a kill, came before the first
            self._path.unlink()
            return
        self._bytes = sum(map(len, lines))
        os.truncate(self._path, self._bytes)
        # each line was written just before its response ended: it was delivered
        self._lines.extend((line, lambda: True) for line in lines)
        log.warning("%s of an earlier process: recorded now", self)
        self._begin()

    async def add(self, line: bytes, delivered: Callable[[], bool]) -> None:
        """A turn waits, and survives a killed process. Raises 503 if the file cannot be written."""
        self._unwritten.append(added := (line, delivered))
        async with self._writing:  # those that come meanwhile are written together
            try:
                await self._write()
            except OSError as error:
                self._unwritten.remove(added)
                self._fault = f"turns cannot be kept in {self._path}: {error}"
                if (now := self._clock()) > self._try_at + REMIND_S:
                    log.error("requests are refused: %s", self._fault)
                self._try_at = now + REFUSED_S
                raise RequestError(503, "store_unavailable", UNKEPT) from error

    async def empty(self) -> None:
        """Return when no turn waits."""
        if self._recording is not None:
            await asyncio.wait({self._recording})

    async def close(self, within_s: float) -> None:
        """Give the store these seconds to come back, then log what happens to the turns."""
        if self._recording is None:
            return
        log.warning("the store has %g seconds to come back: %s", within_s, self)
        await asyncio.wait({self._recording}, timeout=within_s)
        self._recording.cancel()
        if self._lines and self._path is None:
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
                if not self._lost:
                    log.error("a turn cannot be recorded (%s)", type(error).__name__)
                self._lost += 1
                self._counter.inc()
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

    async def _write(self) -> None:
        """Append all that is not in the file yet. Raises OSError: nothing was written."""
        if not (lines := self._unwritten.copy()):
            return
        data = b"".join(line for line, _ in lines)
        if self._path is not None:
            await asyncio.to_thread(append, self._path, data)
        del self._unwritten[: len(lines)]
        self._lines.extend(lines)
        self._bytes, self._fault = self._bytes + len(data), None
        self._begin()

    async def _clear(self) -> None:
        """Remove the file, unless turns came meanwhile."""
        if self._lines:
            return
        self._bytes, self._fault = 0, None
        if self._path is not None:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                log.error("turns are recorded, and stay in a file too: %s", error)


def append(path: Path, data: bytes) -> None:
    """Write everything to the disk, or nothing. Raises OSError."""
    with open(path, "ab", 0, opener=partial(os.open, mode=0o600)) as file:
        size, left = os.fstat(file.fileno()).st_size, memoryview(data)
        try:
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise
