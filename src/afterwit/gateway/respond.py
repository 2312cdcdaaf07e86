"""A running response: its choices are sampled, sent and recorded, or cancelled if the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from time import perf_counter
from typing import Any

from starlette.types import Send

from afterwit.dialects.dialect import Encoder
from afterwit.dialects.request import Field
from afterwit.dialects.response import ChoiceDelta, ChoiceEnd, ResponseEvent, Usage
from afterwit.engines.port import Generate, Step
from afterwit.errors import ContextExceeded, EngineError, EngineUnavailable, RequestError, RequestRefused
from afterwit.gateway.context import Fault, Gateway
from afterwit.gateway.limits import INTERNAL, RawHeaders
from afterwit.gateway.prepare import PreparedRequest
from afterwit.gateway.record import Recorder
from afterwit.gateway.reply import Choice

FIELDS: Mapping[str, str] = {"prompt": Field.MESSAGES, "constraint": Field.FORMAT}
"""What a client's request calls a field of `Generate`, if it differs."""


class RunningResponse:
    """Drives the engine for one request. `over`: the last event was sent."""

    def __init__(
        self,
        gateway: Gateway,
        request: PreparedRequest,
        choices: Sequence[Choice],
        recorder: Recorder,
        writer: ResponseWriter,
    ) -> None:
        self._gateway, self._request = gateway, request
        self._choices, self._recorder, self._writer = choices, recorder, writer
        self._started = perf_counter()
        self.over = False

    async def run(self) -> None:
        """Sample and send all choices. Raises RequestError if its status can still be sent.

        The last event is sent when all choices are recorded.
        """
        try:
            async with self._writer.kept_alive(self._version()):
                await _together([self._complete(choice) for choice in self._choices])
        except RequestRefused as error:
            await self._report(_refused(error), error)
            return
        except EngineError as error:
            await self._fail(error)
            return
        except RequestError as error:
            if not await self._writer.fail(error):
                raise
            return
        except Exception:  # our own fault: the client hears of it, and the middleware logs it
            await self._writer.fail(INTERNAL)
            raise
        self._gateway.faults.pop("engine", None)
        usage = self._usage()
        await self._writer.end(usage, self._version())
        self.over = True
        self._gateway.metrics.answered(usage, perf_counter() - self._started)
        self._recorder.delivered(self._choices)

    async def abandon(self) -> None:
        """The client left: what was sampled is recorded, and does not train."""
        self._gateway.metrics.client_left.inc()
        for choice in self._choices:
            await self._recorder.client_left(choice)

    async def _complete(self, choice: Choice) -> None:
        """Sample one choice to its end, sending it as it grows. It is recorded before its end is sent."""
        await self._sample(choice)
        events = choice.reply.finish()
        await self._recorder.save(choice)
        await self._writer.end_choice(choice, events, self._version())

    async def _sample(self, choice: Choice) -> None:
        try:
            async with self._gateway.in_flight.within(self._gateway.settings.response_timeout_s):
                async with aclosing(self._steps(choice)) as steps:
                    async for step in steps:
                        await self._writer.grow(choice, self._take(choice, step))
                        if choice.reply.done:
                            return
        except TimeoutError as error:
            if not choice.reply.completion:
                raise RequestError(
                    504, "timeout", "The engine sampled nothing in the time allowed."
                ) from error

    def _steps(self, choice: Choice) -> AsyncGenerator[Step, None]:
        request = Generate(
            prompt_ids=self._request.prompt.ids,
            sampling=choice.sampling,
            forced_prefix=self._request.prompt.forced,
            constraint=self._request.prompt.constraint,
            top_logprobs=self._request.asked.top_logprobs if self._tells_logprobs() else None,
            adapter=self._request.adapter,
        )
        return self._gateway.engine.generate(request)

    def _tells_logprobs(self) -> bool:
        """Whether the engine is asked for the model's own log-probs. Else the recorded ones do."""
        return self._request.asked.logprobs and self._gateway.engine.capabilities.top_logprobs > 0

    def _take(self, choice: Choice, step: Step) -> list[ResponseEvent]:
        if not choice.reply.completion:
            self._gateway.metrics.first_token.observe(perf_counter() - self._started)
        return choice.reply.push(step)

    async def _fail(self, error: EngineError) -> None:
        """Report the engine's fault: by a status if nothing was sent yet, else inside the stream."""
        self._gateway.faults["engine"] = Fault(message=f"The engine failed: {error}", at=self._gateway.now())
        status = 502 if isinstance(error, EngineUnavailable) else 500
        reported = RequestError(
            status, "engine_failed", "The engine behind this server failed; its log says why."
        )
        await self._report(reported, error)

    async def _report(self, reported: RequestError, error: EngineError) -> None:
        """Send an error inside the stream if one has begun; else raise it."""
        if not await self._writer.fail(reported):
            raise reported from error

    def _usage(self) -> Usage:
        """What a response goes on from counts as prompt."""
        prompt, begun = self._request.prompt, self._begun()
        completion = sum(max(choice.reply.completion - begun, 0) for choice in self._choices)
        return Usage(prompt=len(prompt.ids) + begun, completion=completion)

    def _begun(self) -> int:
        """Tokens of each response that the client gave."""
        return len(self._request.prompt.forced) if self._request.asked.prefill else 0

    def _version(self) -> int:
        """The weights that sampled the response's latest token."""
        versions = [choice.reply.version for choice in self._choices if choice.reply.version is not None]
        return max(versions, default=self._gateway.engine.live(self._request.adapter) or 0)


def _refused(error: RequestRefused) -> RequestError:
    """The engine's refusal as the client's fault."""
    code = "context_length_exceeded" if isinstance(error, ContextExceeded) else "invalid_value"
    return RequestError(400, code, str(error), param=FIELDS.get(error.field, error.field))


async def _together(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run all. The first failure ends the others and is raised, not in a group."""
    if len(works) == 1:
        await works[0]
        return
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures


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
