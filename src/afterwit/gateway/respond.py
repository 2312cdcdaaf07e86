"""A running response: its choices are sampled, sent and recorded, or cancelled if the client leaves.

If the store fails, serving goes on: such turns are not recorded and cannot train.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from starlette.types import Send

from afterwit.dialects.dialect import Encoder
from afterwit.dialects.request import Field
from afterwit.dialects.response import ChoiceDelta, ChoiceEnd, ResponseEvent, Usage
from afterwit.engines.port import Generate, Step
from afterwit.errors import (
    ContextExceeded,
    EngineError,
    EngineUnavailable,
    RequestError,
    RequestRefused,
    StoreError,
)
from afterwit.gateway.binder import Bound, store_turn
from afterwit.gateway.context import Fault, Gateway
from afterwit.gateway.limits import INTERNAL, RawHeaders
from afterwit.gateway.prepare import PreparedRequest
from afterwit.gateway.reply import Choice
from afterwit.store import Store
from afterwit.turn import Finish, Turn

log = logging.getLogger("afterwit.gateway")

T = TypeVar("T")

FIELDS: Mapping[str, str] = {"prompt": Field.MESSAGES, "constraint": Field.FORMAT}
"""The name in a client's request of a field of `Generate`, if it differs."""

STREAM_HEADERS = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))

REFUSED_WITHIN_S = 0.2
"""Seconds for the engine to refuse a request: until then its client gets a status, later an event."""


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
        except (RequestError, EngineError) as error:
            reported = error if isinstance(error, RequestError) else self._reported(error)
            if await self._writer.fail(reported):
                return
            if reported is error:
                raise
            raise reported from error
        except Exception:  # our own fault: the client gets an error, and the middleware logs it
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
        """The model's own log-probs are asked for if the engine has them; else the recorded ones serve."""
        asked, engine = self._request.asked, self._gateway.engine
        with_logprobs = asked.logprobs and engine.capabilities.top_logprobs > 0
        request = Generate(
            prompt_ids=self._request.prompt.ids,
            sampling=choice.sampling,
            forced_prefix=self._request.prompt.forced,
            constraint=self._request.prompt.constraint,
            top_logprobs=asked.top_logprobs if with_logprobs else None,
            adapter=self._request.adapter,
        )
        return engine.generate(request)

    def _take(self, choice: Choice, step: Step) -> list[ResponseEvent]:
        if not choice.reply.completion:
            self._gateway.metrics.first_token.observe(perf_counter() - self._started)
        return choice.reply.push(step)

    def _reported(self, error: EngineError) -> RequestError:
        """The client's error: its own if the engine refused the request, else the engine's fault."""
        if isinstance(error, RequestRefused):
            code = "context_length_exceeded" if isinstance(error, ContextExceeded) else "invalid_value"
            return RequestError(400, code, str(error), param=FIELDS.get(error.field, error.field))
        self._gateway.faults["engine"] = Fault(message=f"The engine failed: {error}", at=self._gateway.now())
        status = 502 if isinstance(error, EngineUnavailable) else 500
        return RequestError(
            status, "engine_failed", "The engine behind this server failed; its log says why."
        )

    def _usage(self) -> Usage:
        """Tokens of a response that the client gave count as prompt."""
        prompt = self._request.prompt
        begun = len(prompt.forced) if self._request.asked.prefill else 0
        completion = sum(max(choice.reply.completion - begun, 0) for choice in self._choices)
        return Usage(prompt=len(prompt.ids) + begun, completion=completion)

    def _version(self) -> int:
        """The weights that sampled the response's latest token."""
        versions = [choice.reply.version for choice in self._choices if choice.reply.version is not None]
        return max(versions, default=self._gateway.engine.live(self._request.adapter) or 0)


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


class Recorder:
    """Records the choices of one response. `bound` is None if the store did not answer."""

    def __init__(self, gateway: Gateway, request: PreparedRequest, bound: Bound | None) -> None:
        self._gateway, self._request, self._bound = gateway, request, bound

    async def save(self, choice: Choice) -> None:
        """The finished choice, durable on return unless the store fails. Cancelling does not stop it."""
        choice.saving = asyncio.ensure_future(self._save(choice, choice.reply.ending))
        await asyncio.shield(choice.saving)

    async def client_left(self, choice: Choice) -> None:
        """Record what was sampled of a choice before its client left, unless its record is on its way."""
        if choice.saving is not None:
            await choice.saving
        else:
            await self._save(choice, Finish.CLIENT_LEFT)

    def delivered(self, choices: Iterable[Choice]) -> None:
        """The client has the whole response."""
        if self._bound is not None:
            turns = [choice.turn for choice in choices]
            self._gateway.deliveries.add(turns, partial(_store_failed, self._gateway))

    async def _save(self, choice: Choice, finish: Finish) -> None:
        bound, gateway = self._bound, self._gateway
        if bound is not None:
            turn, own, now = self._turn(choice, finish, bound), self._request.turns, gateway.now()

            def write(store: Store) -> bool:
                store_turn(store, bound, turn, own=own, now=now)
                return True

            if await try_store(gateway, write):
                gateway.faults.pop("store", None)
                return
        gateway.metrics.unrecorded.inc()

    def _turn(self, choice: Choice, finish: Finish, bound: Bound) -> Turn:
        request, binding = self._request, bound.binding
        return Turn(
            id=choice.turn,
            scope=request.scope,
            session=binding.session,
            parent=binding.parent,
            kind=bound.kind,
            created=request.created,
            model=self._gateway.engine.facts.model,
            conversation=request.prompt.conversation,
            prompt_ids=request.prompt.ids,
            sampling=choice.sampling,
            sampled=choice.reply.sampled(),
            message=choice.message(),
            finish=finish,
            teaches=request.teaches,
            adapter=request.adapter,
        )


async def try_store(gateway: Gateway, work: Callable[[Store], T]) -> T | None:
    """The store's result, None if it fails. /readyz shows the fault until a turn is recorded again."""
    try:
        return await gateway.store.call(work)
    except StoreError as error:
        _store_failed(gateway, error)
        return None


def _store_failed(gateway: Gateway, error: StoreError) -> None:
    """Log the first failure of the store; keep the newest for /readyz."""
    if "store" not in gateway.faults:
        log.error("turns are not recorded: %s", error)
    message = f"Turns are served but not recorded: {error}"
    gateway.faults["store"] = Fault(message=message, at=gateway.now())
