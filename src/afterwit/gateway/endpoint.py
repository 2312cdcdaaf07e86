"""The model's endpoints in one dialect: limits and key, then the body is read, parsed, prepared and bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from afterwit.binding.request import ClientSession, client_session_of, read_request
from afterwit.dialects.dialect import (
    Dialect,
    EarlierTurns,
    Parse,
    ReferringParser,
    StoredResponses,
    TokenCount,
)
from afterwit.dialects.fields import omitted_kind, shown
from afterwit.dialects.request import ModelRequest
from afterwit.errors import RequestError, StoreError, TurnNotFound
from afterwit.gateway.auth import Caller, Permission, group_of, owner_of, scope_of
from afterwit.gateway.context import CALLER, HEADERS, STILL_FAILING_S, STORE_WITHIN_S, Gateway
from afterwit.gateway.limits import parse_json, until_disconnect
from afterwit.gateway.prepare import (
    Bound,
    PreparedRequest,
    bind_request,
    check_model,
    check_request,
    count_tokens,
    prepare,
    session_lessons,
)
from afterwit.gateway.respond import RunningResponse
from afterwit.store import Store
from afterwit.tracking.traces import span
from afterwit.turn import ENTROPY_BYTES, Kind, Turn, turn_id, turn_of_response

T = TypeVar("T")

OMITTED = "left out of a request: %s; the model reads only text, and a note in place of the rest"
UNSERVED = "left out of a request: a tool of type %s; the model is offered functions alone"

READ_OUT = 4
"""Times the largest body: more is cut off."""

READ_TIMES = 8
"""Times `thread_from_bytes`: parsing a body takes much less than rendering and tokenizing it."""


class ModelEndpoint:
    """Needs the scope `chat`. Raw ASGI, because it streams and must notice when its client leaves."""

    def __init__(self, gateway: Gateway, dialect: Dialect) -> None:
        self._gateway, self._dialect = gateway, dialect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway, engine, headers = self._gateway, self._gateway.engine, scope[HEADERS]
        caller: Caller = scope[CALLER]
        caller.require(Permission.CHAT)
        gateway.in_flight.check()
        gateway.backlog.check()
        with gateway.in_flight.body() as hold:
            body = await read_bytes(gateway, scope, receive, hold)
            with gateway.in_flight.admit(caller.name if gateway.keys.several else None) as take:
                asked, client, size = await _parsed(gateway, self._dialect.parse, body, headers, caller)
                del body  # it would be in memory for as long as the response takes
                check_request(asked, gateway.names, engine.facts.vocabulary, engine.capabilities)
                take(asked.choices)
                work = partial(self._prepared, asked, caller, headers, client)
                await self._respond(await gateway.off_loop(size, work), receive, send)

    def _prepared(
        self, asked: ModelRequest, caller: Caller, headers: Mapping[str, str], client: ClientSession
    ) -> PreparedRequest:
        """Render the conversation, and hash its segments for binding."""
        gateway, now = self._gateway, self._gateway.now()
        group = group_of(headers) if gateway.adapters.division == "per_session_group" else None
        scope = scope_of(caller, headers.get("user-agent"), group)
        if OMITTED not in gateway.warned:
            contents = (message.content for message in asked.conversation.messages)
            kinds = (omitted_kind(content) for content in contents if content)
            if (kind := next(filter(None, kinds), None)) is not None:
                gateway.warn_once(OMITTED, kind)
        if asked.unserved_tool is not None:
            gateway.warn_once(UNSERVED, shown(asked.unserved_tool))
        length = gateway.engine.facts.context_length
        return PreparedRequest(
            asked=asked,
            prompt=prepare(asked, gateway.renderer, context_length=length, now=now),
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
        """Bind the request and answer it. If the store fails, it is bound when its turns are recorded."""
        gateway, incoming, began = self._gateway, request.incoming, perf_counter()

        def bind(store: Store) -> tuple[Bound | None, str]:
            """The session's lessons come with the binding, in one call of the store."""
            teaches, now, lessons = request.teaches, request.created, gateway.lessons
            bound = bind_request(store, incoming, teaches=teaches, now=now)
            if lessons is None or bound.kind is not Kind.MAIN or not teaches:
                return bound, ""
            fresh = partial(lessons, adapter=request.adapter, scope=incoming.scope, now=now)
            return bound, session_lessons(store, bound, fresh)

        found = await gateway.try_store(bind, within_s=STORE_WITHIN_S - STILL_FAILING_S)
        bound, lessons = found or (None, "")
        if lessons:
            request = await self._with_lessons(request, lessons)
        left_s = STORE_WITHIN_S - (perf_counter() - began)
        if bound is not None and bound.answered:
            gateway.wake_judge()
        response = RunningResponse(gateway, request, bound, self._dialect, send, store_s=left_s)
        try:
            if not await until_disconnect(response.run(), receive, finished=lambda: response.over):
                await response.abandon()
        finally:
            session = None if bound is None else bound.binding.session
            span("request", incoming.turn, request.created, gateway.now(), session=session)

    async def _with_lessons(self, request: PreparedRequest, lessons: str) -> PreparedRequest:
        """The request with the session's lessons in its prompt, if they fit the context."""
        gateway, asked = self._gateway, request.asked
        shown = replace(asked, conversation=replace(asked.conversation, lessons=lessons))
        length = gateway.engine.facts.context_length
        work = partial(prepare, shown, gateway.renderer, context_length=length, now=request.created)
        try:
            prompt = await gateway.off_loop(shown.conversation.characters, work)
        except RequestError:  # without them it fits
            return request
        return replace(request, prompt=prompt)


async def count(gateway: Gateway, route: TokenCount, request: Request) -> Response:
    """The tokens of a request's prompt. Needs the scope `chat`."""
    caller: Caller = request.scope[CALLER]
    caller.require(Permission.CHAT)
    gateway.in_flight.check()
    with gateway.in_flight.body() as hold:
        body = await read_bytes(gateway, request.scope, request.receive, hold)
        with gateway.in_flight.admit():
            asked, _, size = await _parsed(gateway, route.parse, body, request.scope[HEADERS], caller)
            check_model(asked, gateway.names)
            length, now = gateway.engine.facts.context_length, gateway.now()
            work = partial(count_tokens, asked, gateway.renderer, context_length=length, now=now)
            tokens = await gateway.off_loop(size, work)
    return JSONResponse(route.body(tokens))


async def stored(gateway: Gateway, route: StoredResponses, request: Request) -> Response:
    """A stored response. Needs the scope `chat`, and the key that the response was made for."""
    caller = request.scope[CALLER]
    caller.require(Permission.CHAT)
    turn = await _own_turn(gateway, turn_of_response(request.path_params["response"]), caller)
    if turn is None:
        raise RequestError(404, "response_not_found", "There is no such response.")
    return JSONResponse(route.body(turn))


async def read_bytes(
    gateway: Gateway, scope: Scope, receive: Receive, hold: Callable[[int], None], *, most: int | None = None
) -> bytes:
    """The body, at most `most` bytes and as many as the settings allow. Raises 408 after `body_timeout_s`
    seconds without a piece, 413 and 415.

    `hold` gets the bytes of each piece that is kept, and may raise. A body that is too large is read and
    dropped before it is refused, because a client that is cut off does not read the error.
    """
    settings, headers = gateway.settings, scope[HEADERS]
    limit = settings.max_body_bytes if most is None else min(most, settings.max_body_bytes)
    read_out = READ_OUT * settings.max_body_bytes
    too_large = RequestError(413, "request_too_large", f"The body is larger than {limit} bytes.")
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > read_out:
        raise too_large
    if (headers.get("content-encoding") or "identity").lower() != "identity":
        raise RequestError(415, "unsupported_encoding", "Send the body uncompressed.")
    unnamed = "" if "origin" in headers else "application/json"  # a page needs no preflight to send no type
    kind = headers.get("content-type", unnamed).partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise RequestError(415, "unsupported_media_type", f"Send application/json, not {kind or 'nothing'}.")
    pieces: list[bytes] = []
    size, more = 0, True
    async with gateway.in_flight.receiving():
        while more and size <= read_out:
            try:
                async with asyncio.timeout(settings.body_timeout_s):
                    message = await receive()
            except TimeoutError as error:
                raise RequestError(
                    408, "body_timeout", "The request's body did not arrive in time."
                ) from error
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            piece = message.get("body", b"")
            size += len(piece)
            if size <= limit:
                hold(len(piece))
                pieces.append(piece)
            more = message.get("more_body", False)
    if size > limit:
        raise too_large
    return b"".join(pieces)


async def read_json(gateway: Gateway, data: bytes, work: Callable[[dict[str, Any]], T]) -> T:
    """`work` applied to a body's JSON. Raises what it raises, and 400."""
    return await gateway.off_loop(len(data) // READ_TIMES, lambda: work(parse_json(data)))


async def _parsed(
    gateway: Gateway, parse: Parse, data: bytes, headers: Mapping[str, str], caller: Caller
) -> tuple[ModelRequest, ClientSession, int]:
    """A body parsed, with the turns that it refers to; the client's statements; and its size.

    The size is the characters to render, or the bytes of the body if more: a short body may refer to a long
    conversation. Raises what `parse` raises, 400 and 503.
    """
    limits = gateway.settings.request_limits

    def parsed(asked: ModelRequest, body: Mapping[str, Any]) -> tuple[ModelRequest, ClientSession, int]:
        return asked, client_session_of(headers, body), max(len(data), asked.conversation.characters)

    if not isinstance(parse, ReferringParser):
        return await read_json(gateway, data, lambda body: parsed(parse(body, limits), body))
    body, found = await read_json(gateway, data, lambda body: (body, parse.references(body)))
    previous = None if found.previous is None else await _own_turn(gateway, found.previous, caller)
    quoted = {}
    if found.quoted:
        quoted = await _read(gateway, lambda store: store.messages_of(_owned(store, found.quoted, caller)))
    work = partial(parse.parse, body, limits, EarlierTurns(previous=previous, quoted=quoted))
    return parsed(await gateway.off_loop(len(data) // READ_TIMES, work), body)


async def _own_turn(gateway: Gateway, name: str, caller: Caller) -> Turn | None:
    """A turn of the caller's key; None if there is none, even if another key has it. Raises 503."""
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
        return await gateway.read(work, within_s=STORE_WITHIN_S)
    except TurnNotFound:
        raise
    except StoreError as error:
        message = f"The request refers to an earlier response, and the store does not answer: {error}"
        raise RequestError(503, "store_unavailable", message) from error
