"""A running response: its choices are sampled, sent and recorded, or cancelled if the client leaves.

If the store fails, serving goes on: such turns wait in a file, and are recorded when it is back. A response
that can be kept nowhere ends in an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

from starlette.types import Send

from afterwit.chat_format.encode import Detokenizer
from afterwit.dialects.dialect import (
    ChoiceDelta,
    ChoiceEnd,
    Dialect,
    Encoder,
    ResponseEvent,
    ResponseHead,
    Usage,
)
from afterwit.dialects.request import Field
from afterwit.engines.port import Generate
from afterwit.errors import ContextExceeded, EngineError, EngineUnavailable, RequestError, RequestRefused
from afterwit.gateway.backlog import UnrecordedTurn
from afterwit.gateway.context import Fault, Gateway
from afterwit.gateway.limits import INTERNAL, RawHeaders
from afterwit.gateway.prepare import Bound, PreparedRequest, store_turn
from afterwit.gateway.reply import Reply
from afterwit.store import Store
from afterwit.turn import Finish, Kind, Sampling, Turn, call_id

FIELDS: Mapping[str, str] = {"prompt": Field.MESSAGES, "constraint": Field.FORMAT}
"""The name in a client's request of a field of `Generate`, if it differs."""

STREAM_HEADERS = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))

REFUSED_WITHIN_S = 0.2
"""Seconds for the engine to refuse a request: until then its client gets a status, later an event."""


@dataclass(slots=True, kw_only=True)
class Choice:
    """A growing reply, one of a response's choices."""

    index: int
    turn: str
    sampling: Sampling
    reply: Reply
    saving: asyncio.Task[None] | None = None


class RunningResponse:
    """Drives the engine for one request. `bound` is None if the store did not answer; it has `store_s` more
    seconds.

    `over`: the last event was sent.
    """

    def __init__(
        self,
        gateway: Gateway,
        request: PreparedRequest,
        bound: Bound | None,
        dialect: Dialect,
        send: Send,
        *,
        store_s: float,
    ) -> None:
        self._gateway, self._request, self._bound, self._store_s = gateway, request, bound, store_s
        self._started = perf_counter()
        self.over = False
        asked, prompt, turn = request.asked, request.prompt, request.incoming.turn
        headers = [(b"x-afterwit-turn", turn.encode())]
        if bound is not None:
            headers.append((b"x-afterwit-session", bound.binding.session.encode()))
        head = ResponseHead(
            turn=turn,
            created=int(request.created),
            model=asked.model or gateway.engine.facts.model,
            prompt_tokens=len(prompt.ids),
        )
        self._writer = ResponseWriter(
            send, dialect.encoder(asked, head), headers, heartbeat_s=gateway.settings.heartbeat_s
        )
        self._choices = [self._choice(index, turn) for index, turn in enumerate(request.turns)]

    def _choice(self, index: int, turn: str) -> Choice:
        """A choice with its own seed, and the temperature that the settings may force."""
        gateway, asked, prompt = self._gateway, self._request.asked, self._request.prompt
        sampling = prompt.sampling
        if sampling.seed is not None and index:
            seed = (sampling.seed + index + 2**63) % 2**64 - 2**63  # wraps in 64 bits, as engines require
            sampling = replace(sampling, seed=seed)
        forced = gateway.settings.force_temperature
        if forced is not None and self._bound is not None and self._bound.kind is Kind.MAIN:
            sampling = replace(sampling, temperature=forced)
        reply = Reply(
            detokenizer=Detokenizer.of(gateway.renderer),
            parser=prompt.parser(),
            stops=sampling.stop,
            one_call=not asked.parallel_calls,
            forced=len(prompt.forced),
            prefilled=len(asked.prefill),
            basis=gateway.engine.capabilities.basis,
            spell=gateway.renderer.spelled if asked.logprobs else None,
        )
        return Choice(index=index, turn=turn, sampling=sampling, reply=reply)

    async def run(self) -> None:
        """Sample and send all choices. Raises RequestError if its status can still be sent.

        The last event is sent when all choices are recorded.
        """
        gateway = self._gateway
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
        gateway.faults.pop("engine", None)
        prompt = self._request.prompt
        given = len(prompt.forced) if self._request.asked.prefill else 0  # it counts as prompt
        completion = sum(max(choice.reply.completion - given, 0) for choice in self._choices)
        usage = Usage(
            prompt=len(prompt.ids) + given,
            completion=completion,
            cached=min(self._choices[0].reply.cached, len(prompt.ids) - 1),  # the last one is read again
            reasoning=min(completion, sum(choice.reply.reasoning for choice in self._choices)),
        )
        await self._writer.end(usage, self._version())
        self.over = True
        gateway.metrics.answered(usage, perf_counter() - self._started)
        gateway.deliveries.add(choice.turn for choice in self._choices)

    async def abandon(self) -> None:
        """The client left: what was sampled is recorded, and does not train."""
        self._gateway.metrics.client_left.inc()
        for choice in self._choices:
            with suppress(RequestError):  # it cannot be kept, and no one has it
                if choice.saving is not None:  # its record is on its way
                    await choice.saving
                else:
                    await self._save(choice, Finish.CLIENT_LEFT)

    async def _complete(self, choice: Choice) -> None:
        """Sample one choice to its end, sending it as it grows. It is recorded before its end is sent."""
        await self._sample(choice)
        events = choice.reply.finish()
        choice.saving = asyncio.ensure_future(self._save(choice, choice.reply.ending))
        await asyncio.shield(choice.saving)
        await self._writer.end_choice(choice, events, self._version(), self._gateway.now())

    async def _sample(self, choice: Choice) -> None:
        """The model's own log-probs are asked for if the engine has them; else the recorded ones serve."""
        gateway, asked, prompt = self._gateway, self._request.asked, self._request.prompt
        reply = choice.reply
        with_logprobs = asked.logprobs and gateway.engine.capabilities.top_logprobs > 0
        generate = Generate(
            prompt_ids=prompt.ids,
            sampling=choice.sampling,
            forced_prefix=prompt.forced,
            constraint=prompt.constraint,
            top_logprobs=asked.top_logprobs if with_logprobs else None,
            adapter=self._request.adapter,
            further=choice.index > 0,
        )
        try:
            async with gateway.in_flight.within(gateway.settings.response_timeout_s):
                async with aclosing(gateway.engine.generate(generate)) as steps:
                    async for step in steps:
                        if not reply.completion:
                            gateway.metrics.first_token.observe(perf_counter() - self._started)
                        await self._writer.grow(choice, reply.push(step))
                        if reply.done:
                            return
        except TimeoutError as error:
            if not reply.completion:
                message = "The engine sampled nothing in the time allowed."
                raise RequestError(504, "timeout", message) from error

    async def _save(self, choice: Choice, finish: Finish) -> None:
        """Record a choice, durable on return. If the store fails, it waits, unbound if its request is, so
        that sessions go on in the order of their turns. Raises 503. Cancelling does not stop it."""
        gateway, request, bound = self._gateway, self._request, self._bound
        turn, now, tried = self._turn(choice, finish), gateway.now(), False

        def write(store: Store) -> bool:
            nonlocal tried
            if bound is not None and not (tried and store.scopes([turn.id])):  # a commit may have outlived
                tried = True  # its connection
                store_turn(store, bound, turn, own=request.turns, now=now)
            return True

        can_try = bound is not None and not gateway.backlog
        if can_try and await gateway.try_store(write, within_s=self._store_s) is not None:
            gateway.faults.pop("store", None)
            return
        asked, incoming = request.asked, request.incoming
        unrecorded = UnrecordedTurn(
            turn=turn,
            own=request.turns,
            asked=None if asked.conversation == turn.conversation else asked.conversation,
            client=incoming.client,
            streamed=asked.stream,
            follows=incoming.follows,
            binding=None if bound is None else bound.binding,
            now=now,
        )
        await gateway.backlog.add(unrecorded.line(), lambda: self.over)

    def _turn(self, choice: Choice, finish: Finish) -> Turn:
        """Its session, parent and kind are placeholders if the request is not bound."""
        request, bound = self._request, self._bound
        return Turn(
            id=choice.turn,
            scope=request.incoming.scope,
            session=choice.turn if bound is None else bound.binding.session,
            parent=None if bound is None else bound.binding.parent,
            kind=Kind.MAIN if bound is None else bound.kind,
            created=request.created,
            model=self._gateway.engine.facts.model,
            conversation=request.prompt.conversation,
            prompt_ids=request.prompt.ids,
            sampling=choice.sampling,
            sampled=choice.reply.sampled(),
            message=choice.reply.message(partial(call_id, choice.turn)),
            finish=finish,
            teaches=request.teaches,
            adapter=request.adapter,
        )

    def _reported(self, error: EngineError) -> RequestError:
        """The client's error: its own if the engine refused the request, else the engine's fault."""
        if isinstance(error, RequestRefused):
            code = "context_length_exceeded" if isinstance(error, ContextExceeded) else "invalid_value"
            return RequestError(400, code, str(error), param=FIELDS.get(error.field, error.field))
        self._gateway.faults["engine"] = Fault(f"The engine failed: {error}", self._gateway.now())
        status = 502 if isinstance(error, EngineUnavailable) else 500
        return RequestError(
            status, "engine_failed", "The engine of this server failed; its log has the reason."
        )

    def _version(self) -> int:
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

    async def end_choice(
        self, choice: Choice, events: Sequence[ResponseEvent], version: int, now: float
    ) -> None:
        """A choice has ended with these events, and is recorded."""
        last, reply = self._delta(choice, events, version), choice.reply
        end = ChoiceEnd(
            choice=choice.index,
            message=reply.sent(partial(call_id, choice.turn)),
            finish=reply.ending,
            stop=reply.stop,
            version=version,
            logprobs=reply.logprobs(),
            ended=now,
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
        """Send the data after all that was written before, though a slow client's sends may wait."""
        async with self._order:
            if not self._started:
                self._started = True
                form = [(b"content-length", str(len(data)).encode())] if last else STREAM_HEADERS
                kind = (b"content-type", self._encoder.content_type.encode())
                headers = [kind, *form, *self._headers]
                await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})
            self._sent_at = asyncio.get_running_loop().time()
