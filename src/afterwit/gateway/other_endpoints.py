"""The endpoint that counts the tokens of a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from starlette.types import Receive, Scope, Send

from afterwit.dialects.dialect import StoredResponses, TokenCount
from afterwit.errors import RequestError
from afterwit.gateway.auth import Caller, Permission
from afterwit.gateway.context import Gateway
from afterwit.gateway.earlier_turns import own_turn, parse_body
from afterwit.gateway.limits import send_json
from afterwit.gateway.middleware import CALLER, HEADERS
from afterwit.gateway.prepare import check_model, count_tokens
from afterwit.gateway.reading import off_loop, read_bytes
from afterwit.ids import turn_of_response


class TokenCountEndpoint:
    """Renders a request as if it were to be sampled. Needs the scope `chat`."""

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
                tokens = await self._count(body, scope[HEADERS], caller)
        await send_json(send, 200, self._route.body(tokens))

    async def _count(self, body: bytes, headers: Mapping[str, str], caller: Caller) -> int:
        gateway = self._gateway
        read = await parse_body(gateway, self._route.parse, body, headers, caller)
        check_model(read.asked, gateway.names)
        context_length = gateway.engine.facts.context_length
        count = partial(
            count_tokens, read.asked, gateway.renderer, context_length=context_length, now=gateway.now()
        )
        return await off_loop(gateway, read.size, count)


class StoredResponsesEndpoint:
    """Needs the scope `chat`, and the key that the response was made for."""

    def __init__(self, gateway: Gateway, route: StoredResponses) -> None:
        self._gateway, self._route = gateway, route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = scope[CALLER]
        caller.require(Permission.CHAT)
        name = turn_of_response(scope["path_params"]["response"])
        turn = await own_turn(self._gateway, name, caller)
        if turn is None:
            raise RequestError(404, "response_not_found", "There is no such response.")
        await send_json(send, 200, self._route.body(turn))
