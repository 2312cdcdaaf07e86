"""The model's endpoint in one dialect: from a request's body to the last byte of its response."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from starlette.types import Receive, Scope, Send

from afterwit.binding.client_ids import ClientSession
from afterwit.binding.request import read_request
from afterwit.chat_format.detokenize import Detokenizer
from afterwit.chat_format.parse import ResponseParser
from afterwit.dialects.dialect import Dialect
from afterwit.dialects.fields import omitted_kind
from afterwit.dialects.request import ModelRequest
from afterwit.dialects.response import ResponseHead
from afterwit.gateway.auth import Caller, Permission, group_of, scope_of
from afterwit.gateway.binder import Bound, bind_request
from afterwit.gateway.context import Gateway
from afterwit.gateway.earlier_turns import parse_body
from afterwit.gateway.limits import until_disconnect
from afterwit.gateway.middleware import CALLER, HEADERS
from afterwit.gateway.prepare import (
    PreparedRequest,
    check_capabilities,
    check_model,
    check_token_ids,
    prepare,
)
from afterwit.gateway.reading import off_loop, read_bytes
from afterwit.gateway.record import Recorder, try_store
from afterwit.gateway.reply import Choice, Reply
from afterwit.gateway.respond import ResponseWriter, RunningResponse
from afterwit.ids import ENTROPY_BYTES, turn_id
from afterwit.message import Conversation
from afterwit.tracking.traces import span
from afterwit.turn import Kind, Sampling


class ModelEndpoint:
    """Raw ASGI, because it streams and must notice when its client leaves."""

    def __init__(self, gateway: Gateway, dialect: Dialect) -> None:
        self._gateway, self._dialect = gateway, dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway, headers = self._gateway, scope[HEADERS]
        caller: Caller = scope[CALLER]
        caller.require(Permission.CHAT)
        gateway.in_flight.check()
        with gateway.in_flight.body() as hold:
            body = await read_bytes(gateway, scope, receive, hold)
            with gateway.in_flight.admit() as admission:
                read = await parse_body(gateway, self._dialect.parse, body, headers, caller)
                del body  # it would be in memory for as long as the response takes
                asked = read.asked
                check_model(asked, gateway.names)
                check_token_ids(asked.sampling, gateway.engine.facts.vocabulary)
                check_capabilities(asked, gateway.engine.capabilities)
                admission.take(asked.choices)
                work = partial(self._prepare, asked, caller, headers, read.client)
                await self._respond(await off_loop(gateway, read.size, work), receive, send)

    def _prepare(
        self, asked: ModelRequest, caller: Caller, headers: Mapping[str, str], client: ClientSession
    ) -> PreparedRequest:
        """Render the conversation, and hash its segments for binding."""
        gateway, now = self._gateway, self._gateway.now()
        group = group_of(headers) if gateway.adapters.division == "per_session_group" else None
        scope = scope_of(caller, headers.get("user-agent"), group)
        note_omissions(asked.conversation, gateway.omitted)
        context_length = gateway.engine.facts.context_length
        return PreparedRequest(
            asked=asked,
            prompt=prepare(asked, gateway.renderer, context_length=context_length, now=now),
            scope=scope,
            adapter=gateway.adapters.of(caller.name, group),
            teaches=caller.may(Permission.TEACH),
            incoming=read_request(
                turn=turn_id(now, gateway.entropy(ENTROPY_BYTES - 1) + b"\0"),
                scope=scope,
                conversation=asked.conversation,
                client=client,
                streamed=asked.stream,
                follows=asked.follows,
            ),
            created=now,
        )

    async def _respond(self, request: PreparedRequest, receive: Receive, send: Send) -> None:
        bound = await self._bind(request)
        choices = [self._choice(request, index, bound) for index in range(request.asked.choices)]
        encoder = self._dialect.encoder(request.asked, _head(request))
        writer = ResponseWriter(
            send,
            encoder,
            list(_headers(request, bound)),
            heartbeat_s=self._gateway.settings.heartbeat_s,
        )
        response = RunningResponse(
            self._gateway, request, choices, Recorder(self._gateway, request, bound), writer
        )
        try:
            if not await until_disconnect(response.run(), receive, finished=lambda: response.over):
                await response.abandon()
        finally:
            session = None if bound is None else bound.binding.session
            span("request", request.incoming.turn, request.created, self._gateway.now(), session=session)

    async def _bind(self, request: PreparedRequest) -> Bound | None:
        """The request's session and parent; None if the store fails."""
        work = partial(
            bind_request,
            incoming=request.incoming,
            scope=request.scope,
            teaches=request.teaches,
            now=request.created,
        )
        bound = await try_store(self._gateway, work)
        if bound is not None and bound.answered:
            self._gateway.wake_judge()
        return bound

    def _choice(self, request: PreparedRequest, index: int, bound: Bound | None) -> Choice:
        asked, prompt, renderer = request.asked, request.prompt, self._gateway.renderer
        return Choice(
            index=index,
            turn=request.turns[index],
            sampling=self._sampling(prompt.sampling, index, bound),
            reply=Reply(
                detokenizer=Detokenizer.of(renderer),
                parser=ResponseParser(
                    prompt.convention, thought=prompt.thought, tools=prompt.conversation.tools
                ),
                stops=prompt.sampling.stop,
                one_call=not asked.parallel_calls,
                given=len(prompt.forced),
                unsaid=len(asked.prefill),
                basis=self._gateway.engine.capabilities.basis,
                text_of=renderer.decode if asked.logprobs else None,
            ),
        )

    def _sampling(self, sampling: Sampling, index: int, bound: Bound | None) -> Sampling:
        """The sampling of one choice: its own seed, and the temperature that the settings may force."""
        forced = self._gateway.settings.force_temperature
        if sampling.seed is not None and index:
            sampling = replace(sampling, seed=_signed_64(sampling.seed + index))
        if forced is not None and bound is not None and bound.kind is Kind.MAIN:
            sampling = replace(sampling, temperature=forced)
        return sampling


def _signed_64(number: int) -> int:
    """The number in 64 bits, wrapped around: what every engine takes as a seed."""
    return (number + 2**63) % 2**64 - 2**63


def _head(request: PreparedRequest) -> ResponseHead:
    return ResponseHead(
        turn=request.incoming.turn,
        created=int(request.created),
        model=request.asked.model or "",
        prompt_tokens=len(request.prompt.ids),
    )


def _headers(request: PreparedRequest, bound: Bound | None) -> Iterator[tuple[bytes, bytes]]:
    """The turn's id and session; nothing if the turn could not be bound, because then it is not recorded."""
    if bound is not None:
        yield b"x-afterwit-turn", request.incoming.turn.encode()
        yield b"x-afterwit-session", bound.binding.session.encode()


log = logging.getLogger("afterwit.gateway")


def note_omissions(conversation: Conversation, noted: set[str]) -> None:
    """Log the first kind of part that was left out; `noted` is empty until then."""
    if noted:
        return
    kinds = (omitted_kind(message.content) for message in conversation.messages if message.content)
    kind = next((kind for kind in kinds if kind is not None), None)
    if kind is not None:
        noted.add(kind)
        log.warning("a request holds an %s: the model reads text, so it is told that it was left out", kind)
