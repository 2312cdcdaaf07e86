"""The endpoint that shows a stored response."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from afterwit.core.errors import RequestError
from afterwit.core.ids import turn_of_response
from afterwit.stages.gateway.auth import Permission
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.earlier_turns import own_turn
from afterwit.stages.gateway.http import send_json
from afterwit.stages.gateway.middleware import CALLER
from afterwit.wire.dialect import StoredResponses


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
