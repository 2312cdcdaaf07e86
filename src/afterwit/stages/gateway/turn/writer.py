"""Sends a growing response: its encoder's bytes over ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.types import Send

from afterwit.core.errors import RequestError
from afterwit.stages.gateway.http.responses import RawHeaders
from afterwit.stages.gateway.turn.choice import Choice
from afterwit.wire.dialect import Encoder
from afterwit.wire.response import ChoiceDelta, ChoiceEnd, ResponseEvent, Usage

STREAM_HEADERS = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
REFUSED_WITHIN_S = 0.2
"""Seconds for the engine to refuse a request: until then its client gets a status, later an event."""


class ResponseWriter:
    """Starts the HTTP response with its first bytes: a stream's soon, a whole body's at the end."""

    def __init__(self, send: Send, encoder: Encoder, headers: RawHeaders, *, heartbeat_s: float) -> None:
        self._send, self._encoder, self._headers = send, encoder, headers
        self._heartbeat_s = heartbeat_s
        self._started = False
        self._order = asyncio.Lock()
        self._sent_at = 0.0

    @asynccontextmanager
    async def kept_alive(self, version: int) -> AsyncIterator[None]:
        """Within this a stream begins after `REFUSED_WITHIN_S`, and is never silent for `heartbeat_s`.

        `version` is that of the live weights.
        """
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        beating: asyncio.Task[None] | None = None

        def begin() -> None:
            nonlocal beating
            beating = loop.create_task(self._beat(version, over))

        waiting = loop.call_later(REFUSED_WITHIN_S, begin)
        try:
            yield
        except asyncio.CancelledError:
            if beating is not None:
                beating.cancel()
            raise
        finally:
            waiting.cancel()
            over.set()
            if beating is not None:
                await asyncio.wait([beating])  # it may be writing

    async def _beat(self, version: int, over: asyncio.Event) -> None:
        """Begin the response, if nothing did, and send a heartbeat whenever nothing else was sent."""
        if not self._started and (opening := self._encoder.begin(version)):
            await self._write(opening)
        now = asyncio.get_running_loop().time
        while self._started and not over.is_set():
            try:
                async with asyncio.timeout_at(self._sent_at + self._heartbeat_s):
                    await over.wait()
            except TimeoutError:
                if now() >= self._sent_at + self._heartbeat_s:
                    await self._write(self._encoder.heartbeat)

    async def grow(self, choice: Choice, events: Sequence[ResponseEvent]) -> None:
        """A choice has grown by these events, perhaps by none."""
        version = choice.reply.version
        if version is not None and (data := self._delta(choice, events, version)):
            await self._write(data)

    async def end_choice(self, choice: Choice, events: Sequence[ResponseEvent], version: int) -> None:
        """A choice has ended with these events, and is recorded."""
        last = self._delta(choice, events, version)
        end = ChoiceEnd(
            choice=choice.index,
            message=choice.sent(),
            finish=choice.reply.ending,
            stop=choice.reply.stop,
            version=version,
            logprobs=choice.reply.logprobs(),
        )
        if data := last + self._encoder.end_choice(end):
            await self._write(data)

    async def end(self, usage: Usage, version: int) -> None:
        """All choices have ended."""
        await self._write(self._encoder.end(usage, version), last=True)

    async def fail(self, error: RequestError) -> bool:
        """Send a fault to the client; False if nothing was sent yet, so that its status still can be sent."""
        if self._started:
            await self._write(self._encoder.fail(error), last=True)
        return self._started

    def _delta(self, choice: Choice, events: Sequence[ResponseEvent], version: int) -> bytes:
        logprobs = choice.reply.logprobs() if events else ()
        return self._encoder.delta(
            ChoiceDelta(choice=choice.index, events=events, version=version, logprobs=logprobs)
        )

    async def _write(self, data: bytes, *, last: bool = False) -> None:
        """Send the data behind all that was written before, though a slow client's sends may wait."""
        async with self._order:
            if not self._started:
                self._started = True
                await self._send(
                    {"type": "http.response.start", "status": 200, "headers": self._head(data, last)}
                )
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})
            self._sent_at = asyncio.get_running_loop().time()

    def _head(self, data: bytes, whole: bool) -> list[tuple[bytes, bytes]]:
        form = (b"content-length", str(len(data)).encode())
        headers = [form] if whole else list(STREAM_HEADERS)
        return [(b"content-type", self._encoder.content_type.encode()), *headers, *self._headers]
