"""How a growing response leaves: event by event, or whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import orjson
from starlette.types import Send

from afterwit.core.errors import RequestError
from afterwit.stages.gateway.http.responses import JSON, RawHeaders
from afterwit.stages.gateway.turn.choice import Choice
from afterwit.wire import sse
from afterwit.wire.model_text.tool_calls import Event
from afterwit.wire.openai_chat import response as chat_response
from afterwit.wire.openai_chat.errors import error_body
from afterwit.wire.openai_chat.response import Head, Usage

STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class Sink(Protocol):
    """Where a response goes. `show` and `close` are called for each choice, `end` once."""

    async def show(self, choice: Choice, events: Sequence[Event]) -> None:
        """A choice has grown by these events, perhaps by none."""

    async def close(self, choice: Choice, events: Sequence[Event], version: int) -> None:
        """A choice has ended with these events, and is recorded."""

    async def end(self, choices: Sequence[Choice], usage: Usage, version: int) -> None:
        """The response is over."""

    async def fail(self, error: RequestError) -> bool:
        """Tell the client of a fault; False where nothing was sent yet and an error status still can be."""


class Stream:
    """Server-sent events, sent as they come."""

    def __init__(self, send: Send, head: Head, headers: RawHeaders) -> None:
        self._send, self._head, self._headers = send, head, headers
        self._started = False
        self._opened: set[int] = set()

    async def show(self, choice: Choice, events: Sequence[Event]) -> None:
        version = choice.reply.version
        if version is not None:
            await self._write(self._chunks(choice, events, version))

    async def close(self, choice: Choice, events: Sequence[Event], version: int) -> None:
        chunks = self._chunks(choice, events, version)
        finish = chat_response.chunk(
            self._head,
            version,
            choice.index,
            {},
            finish=choice.reply.ending,
            logprobs=choice.reply.logprobs(),
        )
        await self._write([*chunks, sse.event(finish)])

    async def end(self, choices: Sequence[Choice], usage: Usage, version: int) -> None:
        last = [sse.DONE]
        if self._head.counts:
            last.insert(0, sse.event(chat_response.usage_chunk(self._head, version, usage)))
        await self._write(last, more=False)

    async def fail(self, error: RequestError) -> bool:
        if self._started:
            await self._write([sse.event(error_body(error))], more=False)
        return self._started

    def _chunks(self, choice: Choice, events: Sequence[Event], version: int) -> list[bytes]:
        """The events as chunks; a choice's first says whose words they are."""
        said = [delta for event in events for delta in chat_response.deltas(event, choice.call_id)]
        chunks = [self._chunk(choice, delta, version, first=place == 0) for place, delta in enumerate(said)]
        if choice.index not in self._opened:
            self._opened.add(choice.index)
            chunks.insert(0, self._chunk(choice, chat_response.role_delta(), version))
        return chunks

    def _chunk(
        self, choice: Choice, delta: chat_response.Delta, version: int, *, first: bool = False
    ) -> bytes:
        logprobs = choice.reply.logprobs() if first else None
        return sse.event(chat_response.chunk(self._head, version, choice.index, delta, logprobs=logprobs))

    async def _write(self, chunks: Iterable[bytes], *, more: bool = True) -> None:
        data = b"".join(chunks)
        if not self._started:
            self._started = True
            headers = [*STREAM_HEADERS, *self._headers]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        if data or not more:
            await self._send({"type": "http.response.body", "body": data, "more_body": more})


class Whole:
    """One JSON body when everything is there."""

    def __init__(self, send: Send, head: Head, headers: RawHeaders, *, logprobs: bool) -> None:
        self._send, self._head, self._headers, self._logprobs = send, head, headers, logprobs

    async def show(self, choice: Choice, events: Sequence[Event]) -> None:
        pass

    async def close(self, choice: Choice, events: Sequence[Event], version: int) -> None:
        pass

    async def end(self, choices: Sequence[Choice], usage: Usage, version: int) -> None:
        shown = [choice.whole(logprobs=self._logprobs) for choice in choices]
        data = chat_response.body(self._head, version, shown, usage)
        payload = orjson.dumps(data)
        headers = [JSON, (b"content-length", str(len(payload)).encode()), *self._headers]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": payload})

    async def fail(self, error: RequestError) -> bool:
        return False
