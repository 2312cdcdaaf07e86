"""The model's endpoints in one dialect: from a request's body to the last byte of its response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from starlette.types import Receive, Scope, Send

from afterwit.binding.client_ids import ClientSession, client_session_of
from afterwit.binding.request import read_request
from afterwit.chat_format.detokenize import Detokenizer
from afterwit.chat_format.parse import ResponseParser
from afterwit.dialects.dialect import (
    Dialect,
    EarlierTurns,
    Parse,
    References,
    ReferringParser,
    StoredResponses,
    TokenCount,
)
from afterwit.dialects.fields import omitted_kind
from afterwit.dialects.request import ModelRequest
from afterwit.dialects.response import ResponseHead
from afterwit.errors import RequestError, StoreError, TurnNotFound
from afterwit.gateway.auth import Caller, Permission, group_of, owner_of, scope_of
from afterwit.gateway.binder import Bound, bind_request
from afterwit.gateway.context import CALLER, HEADERS, Gateway
from afterwit.gateway.limits import parse_json, read_body, send_json, until_disconnect
from afterwit.gateway.prepare import (
    PreparedRequest,
    check_capabilities,
    check_model,
    check_token_ids,
    count_tokens,
    prepare,
)
from afterwit.gateway.reply import Choice, Reply
from afterwit.gateway.respond import Recorder, ResponseWriter, RunningResponse, try_store
from afterwit.ids import ENTROPY_BYTES, turn_id, turn_of_response
from afterwit.message import Conversation
from afterwit.store import Store
from afterwit.tracking.traces import span
from afterwit.turn import Kind, Sampling, Turn

log = logging.getLogger("afterwit.gateway")

T = TypeVar("T")

READ_TIMES = 8
"""Times `thread_from_bytes`: parsing a body takes much less than rendering and tokenizing it."""


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
                read = await _parsed(gateway, self._dialect.parse, body, headers, caller)
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
        _log_omissions(asked.conversation, gateway.omitted)
        return PreparedRequest(
            asked=asked,
            prompt=prepare(
                asked, gateway.renderer, context_length=gateway.engine.facts.context_length, now=now
            ),
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
        gateway, turn = self._gateway, request.incoming.turn
        bound = await self._bind(request)
        head = ResponseHead(
            turn=turn,
            created=int(request.created),
            model=request.asked.model or "",
            prompt_tokens=len(request.prompt.ids),
        )
        writer = ResponseWriter(
            send,
            self._dialect.encoder(request.asked, head),
            list(_headers(turn, bound)),
            heartbeat_s=gateway.settings.heartbeat_s,
        )
        choices = [self._choice(request, index, bound) for index in range(request.asked.choices)]
        response = RunningResponse(gateway, request, choices, Recorder(gateway, request, bound), writer)
        try:
            if not await until_disconnect(response.run(), receive, finished=lambda: response.over):
                await response.abandon()
        finally:
            session = None if bound is None else bound.binding.session
            span("request", turn, request.created, gateway.now(), session=session)

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
                forced=len(prompt.forced),
                prefilled=len(asked.prefill),
                basis=self._gateway.engine.capabilities.basis,
                text_of=renderer.decode if asked.logprobs else None,
            ),
        )

    def _sampling(self, sampling: Sampling, index: int, bound: Bound | None) -> Sampling:
        """The sampling of one choice: its own seed, and the temperature that the settings may force."""
        forced = self._gateway.settings.force_temperature
        if sampling.seed is not None and index:
            seed = (sampling.seed + index + 2**63) % 2**64 - 2**63  # wraps in 64 bits, as every engine wants
            sampling = replace(sampling, seed=seed)
        if forced is not None and bound is not None and bound.kind is Kind.MAIN:
            sampling = replace(sampling, temperature=forced)
        return sampling


class TokenCountEndpoint:
    """Counts the tokens of a request's prompt. Needs the scope `chat`."""

    def __init__(self, gateway: Gateway, route: TokenCount) -> None:
        self._gateway, self._route = gateway, route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway = self._gateway
        caller: Caller = scope[CALLER]
        caller.require(Permission.CHAT)
        gateway.in_flight.check()
        with gateway.in_flight.body() as hold:
            body = await read_bytes(gateway, scope, receive, hold)
            with gateway.in_flight.admit():
                read = await _parsed(gateway, self._route.parse, body, scope[HEADERS], caller)
                check_model(read.asked, gateway.names)
                length = gateway.engine.facts.context_length
                count = partial(
                    count_tokens, read.asked, gateway.renderer, context_length=length, now=gateway.now()
                )
                tokens = await off_loop(gateway, read.size, count)
        await send_json(send, 200, self._route.body(tokens))


class StoredResponsesEndpoint:
    """Needs the scope `chat`, and the key that the response was made for."""

    def __init__(self, gateway: Gateway, route: StoredResponses) -> None:
        self._gateway, self._route = gateway, route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = scope[CALLER]
        caller.require(Permission.CHAT)
        turn = await _own_turn(self._gateway, turn_of_response(scope["path_params"]["response"]), caller)
        if turn is None:
            raise RequestError(404, "response_not_found", "There is no such response.")
        await send_json(send, 200, self._route.body(turn))


def _headers(turn: str, bound: Bound | None) -> Iterator[tuple[bytes, bytes]]:
    """The turn's id and session; nothing if the turn could not be bound, because then it is not recorded."""
    if bound is not None:
        yield b"x-afterwit-turn", turn.encode()
        yield b"x-afterwit-session", bound.binding.session.encode()


def _log_omissions(conversation: Conversation, logged: set[str]) -> None:
    """Log the first kind of content that was left out; `logged` is empty until then."""
    if logged:
        return
    kinds = (omitted_kind(message.content) for message in conversation.messages if message.content)
    kind = next((kind for kind in kinds if kind is not None), None)
    if kind is not None:
        logged.add(kind)
        log.warning("a request holds an %s: the model reads only text and is told of the omission", kind)


async def read_bytes(
    gateway: Gateway, scope: Scope, receive: Receive, hold: Callable[[int], None], *, most: int | None = None
) -> bytes:
    """The body, at most `most` bytes and as many as the settings allow. Raises 408, 413, 415 and 429."""
    settings = gateway.settings
    limit = settings.max_body_bytes if most is None else min(most, settings.max_body_bytes)
    async with gateway.in_flight.receiving():
        return await read_body(
            scope[HEADERS], receive, limit=limit, pause_s=settings.body_timeout_s, hold=hold
        )


async def read_json(gateway: Gateway, data: bytes, work: Callable[[dict[str, Any]], T]) -> T:
    """`work` applied to a body's JSON. Raises what it raises, and 400."""
    return await off_loop(gateway, len(data) // READ_TIMES, lambda: work(parse_json(data)))


async def off_loop(gateway: Gateway, size: int, work: Callable[[], T]) -> T:
    """Run `work`, in a thread if its text is long, so that streams go on."""
    if size < gateway.settings.thread_from_bytes:
        return work()
    return await asyncio.get_running_loop().run_in_executor(gateway.readers, work)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parsed:
    """A parsed request without its body."""

    asked: ModelRequest
    client: ClientSession
    size: int
    """Characters to render, or bytes of the body if more: a short body may refer to a long conversation."""


async def _parsed(
    gateway: Gateway, parse: Parse, data: bytes, headers: Mapping[str, str], caller: Caller
) -> _Parsed:
    """A body parsed, with the turns that it refers to. Raises what `parse` raises, 400 and 503."""
    limits = gateway.settings.request_limits

    def parsed(asked: ModelRequest, body: Mapping[str, Any]) -> _Parsed:
        size = max(len(data), asked.conversation.characters)
        return _Parsed(asked=asked, client=client_session_of(headers, body), size=size)

    if not isinstance(parse, ReferringParser):
        return await read_json(gateway, data, lambda body: parsed(parse(body, limits), body))
    body, references = await read_json(gateway, data, lambda body: (body, parse.references(body)))
    earlier = await _earlier(gateway, references, caller)
    work = partial(parse.parse, body, limits, earlier)
    return parsed(await off_loop(gateway, len(data) // READ_TIMES, work), body)


async def _earlier(gateway: Gateway, references: References, caller: Caller) -> EarlierTurns:
    previous = None if references.previous is None else await _own_turn(gateway, references.previous, caller)
    quoted = {}
    if references.quoted:
        quoted = await _read(
            gateway, lambda store: store.messages_of(_owned(store, references.quoted, caller))
        )
    return EarlierTurns(previous=previous, quoted=quoted)


async def _own_turn(gateway: Gateway, name: str, caller: Caller) -> Turn | None:
    """A turn of the caller's key; None if there is none, whoever else may have it. Raises 503."""
    try:
        turn = await _read(
            gateway, lambda store: store.turn(name).turn if _owned(store, [name], caller) else None
        )
    except TurnNotFound:
        return None
    return turn if isinstance(turn, Turn) else None


def _owned(store: Store, names: Collection[str], caller: Caller) -> list[str]:
    """The turns among these that are the caller's.

    The content of others is not even read: the time that this takes would reveal that they exist.
    """
    return [name for name, scope in store.scopes(names).items() if owner_of(scope) == caller.name]


async def _read(gateway: Gateway, work: Callable[[Store], T]) -> T:
    try:
        return await gateway.store.call(work)
    except TurnNotFound:
        raise
    except StoreError as error:
        message = f"The request refers to an earlier response, and the store does not answer: {error}"
        raise RequestError(503, "store_unavailable", message) from error
