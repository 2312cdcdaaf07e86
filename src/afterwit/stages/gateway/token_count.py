"""The endpoint that counts the tokens of a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from starlette.types import Receive, Scope, Send

from afterwit.stages.gateway.auth import Caller, Permission
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.earlier_turns import parse_body
from afterwit.stages.gateway.http import send_json
from afterwit.stages.gateway.middleware import CALLER, HEADERS
from afterwit.stages.gateway.reading import off_loop, read_bytes
from afterwit.stages.gateway.turn import check_model, count_tokens
from afterwit.wire.dialect import TokenCount


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
