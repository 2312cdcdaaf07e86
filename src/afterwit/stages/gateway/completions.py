"""`POST /v1/chat/completions`: one request's journey."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from starlette.types import Receive, Scope, Send

from afterwit.core.binding.bind import ClientSession, client_session_of, read_request
from afterwit.core.ids import ENTROPY_BYTES, turn_id
from afterwit.core.turn import Kind, Sampling
from afterwit.stages.gateway.auth.keys import Caller, scope_of
from afterwit.stages.gateway.auth.keys import Scope as KeyScope
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.http.body import read_json
from afterwit.stages.gateway.middleware import CALLER, HEADERS
from afterwit.stages.gateway.turn.binder import Bound, bind_request
from afterwit.stages.gateway.turn.choice import Choice
from afterwit.stages.gateway.turn.prepare import check_model, check_supported, prepare
from afterwit.stages.gateway.turn.recorder import Recorder, try_store
from afterwit.stages.gateway.turn.reply import Reply
from afterwit.stages.gateway.turn.request import Request
from afterwit.stages.gateway.turn.response import Response
from afterwit.stages.gateway.turn.sinks import Sink, Stream, Whole
from afterwit.wire.model_text.detokenize import Detokenizer
from afterwit.wire.model_text.tool_calls import Reader
from afterwit.wire.openai_chat.request import ChatRequest, Limits, parse_chat
from afterwit.wire.openai_chat.response import Head


class Completions:
    """The model's endpoint, raw ASGI: it streams, and it must notice when its client leaves."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        settings = gateway.settings
        self._limits = Limits(max_choices=settings.max_choices, default_max_tokens=settings.max_tokens)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller = scope[CALLER]
        caller.require(KeyScope.CHAT)
        headers, settings = scope[HEADERS], self._gateway.settings
        body, size = await read_json(
            headers, receive, limit=settings.max_body_bytes, pause_s=settings.body_timeout_s
        )
        asked = parse_chat(body, self._limits)
        check_model(asked, self._gateway.names)
        check_supported(asked, self._gateway.engine.facts.vocabulary)
        with self._gateway.in_flight.hold(asked.n):
            user = scope_of(caller, headers.get("user-agent"))
            work = partial(
                self._read, asked, user, client_session_of(headers, body), caller.may(KeyScope.TEACH)
            )
            # a long conversation is read in a thread, so that the streams of others go on
            request = await asyncio.to_thread(work) if size >= settings.thread_from_bytes else work()
            await self._respond(request, receive, send)

    def _read(self, asked: ChatRequest, scope: str, client: ClientSession, teaches: bool) -> Request:
        """Render the conversation, and fingerprint it for binding."""
        gateway, now = self._gateway, self._gateway.now()
        facts = gateway.engine.facts
        return Request(
            asked=asked,
            prompt=prepare(asked, gateway.renderer, context_length=facts.context_length, now=now),
            scope=scope,
            teaches=teaches,
            incoming=read_request(
                turn=turn_id(now, gateway.entropy(ENTROPY_BYTES - 1) + b"\0"),
                scope=scope,
                conversation=asked.conversation,
                client=client,
                streamed=asked.stream,
            ),
            created=now,
        )

    async def _respond(self, request: Request, receive: Receive, send: Send) -> None:
        gateway = self._gateway
        bind = partial(
            bind_request,
            incoming=request.incoming,
            scope=request.scope,
            teaches=request.teaches,
            now=request.created,
        )
        bound = await try_store(gateway, bind)
        if bound is not None and bound.answered:
            gateway.wake_judge()
        choices = [self._choice(request, index, bound) for index in range(request.asked.n)]
        sink = _sink(request, bound, send)
        response = Response(gateway, request, choices, Recorder(gateway, request, bound), sink)
        await _until_left(response, receive)

    def _choice(self, request: Request, index: int, bound: Bound | None) -> Choice:
        asked, prompt, renderer = request.asked, request.prompt, self._gateway.renderer
        return Choice(
            index=index,
            turn=request.turns[index],
            sampling=self._sampling(prompt.sampling, index, bound),
            reply=Reply(
                detokenizer=Detokenizer.of(renderer),
                reader=Reader(prompt.style, thinking=prompt.thinking),
                stops=prompt.sampling.stop,
                one_call=not asked.parallel_calls,
                basis=self._gateway.engine.facts.basis,
                text_of=renderer.decode if asked.logprobs else None,
            ),
        )

    def _sampling(self, sampling: Sampling, index: int, bound: Bound | None) -> Sampling:
        """A choice's own seed, and the temperature that the settings force on the main line."""
        forced = self._gateway.settings.force_temperature
        if sampling.seed is not None and index:
            sampling = replace(sampling, seed=sampling.seed + index)
        if forced is not None and bound is not None and bound.kind is Kind.MAIN:
            sampling = replace(sampling, temperature=forced)
        return sampling


def _sink(request: Request, bound: Bound | None, send: Send) -> Sink:
    head = Head(
        turn=request.incoming.turn,
        created=int(request.created),
        model=request.asked.model or "",
        counts=request.asked.include_usage,
    )
    headers = list(_headers(request, bound))
    if request.asked.stream:
        return Stream(send, head, headers)
    return Whole(send, head, headers, logprobs=request.asked.logprobs)


def _headers(request: Request, bound: Bound | None) -> Iterator[tuple[bytes, bytes]]:
    """Which turn this is; nothing where it could not be bound, because then it is not recorded."""
    if bound is not None:
        yield b"x-afterwit-turn", request.incoming.turn.encode()
        yield b"x-afterwit-session", bound.binding.session.encode()


async def _until_left(response: Response, receive: Receive) -> None:
    """Run the response; when its client leaves before the end, cancel it and record what there is."""
    work = asyncio.ensure_future(response.run())
    left = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
        if work.done() or response.over:
            await work
            return
        await _cancelled(work)
        await response.abandon()
    finally:
        await _cancelled(left)
        await _cancelled(work)


async def _left(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancelled(task: asyncio.Future[None]) -> None:
    """Cancel a task that is not done, and wait for its end."""
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
