"""Limits of a request: requests in flight, bodies, JSON, and whether its client is still there."""

from __future__ import annotations

import asyncio
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from typing import Any

import orjson
from starlette.types import Receive, Send

from afterwit.dialects.dialect import Dialect
from afterwit.errors import RequestError
from afterwit.text import without_halves

MOST_VALUES = 131_072
"""Values of one body. An agent's request has thousands; decoding this many takes a tenth of a second."""

_STRINGS_AND_MARKS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[,\[{]', re.DOTALL)
"""A string, or a mark that begins a value."""

SHARE = 4
"""Of several keys one may hold this many times the places that are left free: four of five if no other holds
any, so that its loop of requests with `n = 16` does not shut out the others."""

AFTER_S = 0.02
"""Seconds before a client is watched: most work that ends sooner needs no watching."""

RawHeaders = Iterable[tuple[bytes, bytes]]

INTERNAL = RequestError(500, "internal_error", "Something failed in Afterwit; its log has the details.")


class InFlight:
    """Counts places: one for each request with a complete body, then one for each choice until its end.

    It also counts the bytes of bodies, which take memory before anything is known of a request. A body that
    is still coming has no place, because its sender decides how long that takes.
    """

    def __init__(self, limit: int, most_bytes: int) -> None:
        self.limit, self._most_bytes = limit, most_bytes
        self.count = self._bytes = 0
        self._of = Counter[str]()
        self.draining = False
        self._timeouts: set[asyncio.Timeout] = set()
        self._coming: dict[asyncio.Timeout, None] = {}
        """Bodies that are being received, oldest first."""
        self._idle = asyncio.Event()
        self._idle.set()

    def check(self, places: int = 1, *, held: int = 0, key: str | None = None) -> None:
        """Raise 429 if the places do not fit next to those of others; alone, any number fits. Also if `key`,
        one of several, would hold more than its share. Raise 503 while draining, unless some are `held`
        already."""
        if self.draining and not held:
            raise RequestError(503, "draining", "The server is shutting down; running answers are finishing.")
        others = self.count - held
        if others and others + places > self.limit:
            raise RequestError(429, "queue_full", f"{others} answers are under way; try again shortly.")
        own = 0 if key is None else self._of[key] - held
        if own and own + places > SHARE * (self.limit - others - places):
            message = f"{own} answers for this key are under way, the rest is for others; try again shortly."
            raise RequestError(429, "queue_full", message)

    @contextmanager
    def admit(self, key: str | None = None) -> Iterator[Callable[[int], None]]:
        """Hold a place, or as many as the yielded function is given. Both raise what `check` raises."""
        held = 0

        def hold(places: int) -> None:
            nonlocal held
            self.count += places - held
            if key is not None:
                self._of[key] += places - held
            held = places

        def take(places: int) -> None:
            self.check(places, held=held, key=key)
            hold(places)
            self._idle.clear()

        take(1)
        try:
            yield take
        finally:
            hold(0)
            if not self.count:
                self._idle.set()
                self._of.clear()

    @asynccontextmanager
    async def receiving(self) -> AsyncIterator[None]:
        """Receive a body. Of more than `limit` bodies, the oldest is cut off: RequestError 408."""
        try:
            async with asyncio.timeout(None) as patience:
                self._coming[patience] = None
                if len(self._coming) > self.limit:
                    oldest = next(iter(self._coming))
                    del self._coming[oldest]
                    oldest.reschedule(asyncio.get_running_loop().time())
                try:
                    yield
                finally:
                    self._coming.pop(patience, None)
        except TimeoutError as error:
            message = "The request's body took too long, and others wait to be received."
            raise RequestError(408, "body_timeout", message) from error

    @contextmanager
    def body(self) -> Iterator[Callable[[int], None]]:
        """Hold the bytes of one body, chunk by chunk. Raises 429 for more than fit next to others."""
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            if self._bytes > held and self._bytes + size > self._most_bytes:
                raise RequestError(429, "queue_full", "Too much is being read at once; try again shortly.")
            self._bytes += size
            held += size

        try:
            yield hold
        finally:
            self._bytes -= held

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """Give the body this many seconds, less if `cut` is called. Raises TimeoutError."""
        async with asyncio.timeout(seconds) as timeout:
            self._timeouts.add(timeout)
            try:
                yield
            finally:
                self._timeouts.discard(timeout)

    def cut(self) -> None:
        """End the time of everything in flight now."""
        now = asyncio.get_running_loop().time()
        for timeout in self._timeouts:
            timeout.reschedule(now)

    async def drain(self) -> None:
        """Refuse new requests; return when nothing is in flight."""
        self.draining = True
        await self.idle()

    async def idle(self) -> None:
        """Return when nothing is in flight."""
        await self._idle.wait()


def parse_json(data: bytes) -> dict[str, Any]:
    """The body as a JSON object, else 400. Lone surrogates become U+FFFD; a byte order mark is left out.

    More values than any request has are refused first, because nothing else runs while JSON is decoded. All
    commas and brackets are counted; only if they are too many are those within strings left out.
    """
    data = data.removeprefix(BOM_UTF8)
    if sum(map(data.count, (b",", b"[", b"{"))) > MOST_VALUES:
        marks = (found for found in _STRINGS_AND_MARKS.finditer(data) if found[0][:1] != b'"')
        if next(islice(marks, MOST_VALUES, None), None) is not None:
            raise RequestError(400, "invalid_json", f"The body holds more than {MOST_VALUES} values.")
    try:
        try:
            parsed = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            if "surrogate" not in error.msg:
                raise
            parsed = orjson.loads(without_halves(data.decode(errors="replace")))
    except orjson.JSONDecodeError as error:
        raise RequestError(400, "invalid_json", f"The body is not JSON: {error.msg}.") from error
    if not isinstance(parsed, dict):
        raise RequestError(400, "invalid_json", "The body must be a JSON object.")
    return parsed


async def until_disconnect(work: Awaitable[None], receive: Receive, *, finished: Callable[[], bool]) -> bool:
    """Run the work, or cancel it if its client leaves before it is `finished`; whether the client stayed.

    A client that leaves in the first `AFTER_S` seconds is noticed after them.
    """
    running, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert running is not None, "a coroutine runs in a task"
    left = False
    watching: asyncio.Task[None] | None = None

    async def watch() -> None:
        nonlocal left
        while (await receive())["type"] != "http.disconnect":
            pass
        if not finished():
            left = True
            running.cancel()

    def begin() -> None:
        nonlocal watching
        watching = loop.create_task(watch())

    waiting = loop.call_later(AFTER_S, begin)
    try:
        await work
    except asyncio.CancelledError:
        if not left:
            raise
        running.uncancel()
    finally:
        waiting.cancel()
        if watching is not None:
            watching.cancel()
    return not left


async def send_json(send: Send, status: int, data: Mapping[str, Any], headers: RawHeaders = ()) -> None:
    """One whole JSON response."""
    payload = orjson.dumps(data)
    form = ((b"content-type", b"application/json"), (b"content-length", str(len(payload)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": [*form, *headers]})
    await send({"type": "http.response.body", "body": payload})


async def send_error(
    send: Send, error: RequestError, dialect: Dialect, headers: RawHeaders, *, retry_after_s: int
) -> None:
    """An error in the dialect's form, with these headers and those of its status."""
    more = list(headers)
    if error.status == 401:
        more.append((b"www-authenticate", b"Bearer"))
    if error.status in (429, 503):
        more.append((b"retry-after", str(retry_after_s).encode()))
    if error.status in (408, 413, 503):
        more.append((b"connection", b"close"))
    await send_json(send, error.status, dialect.error_body(error), more)
