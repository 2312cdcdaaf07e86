"""The page's own chat: the gateway's endpoint answers what is typed, and records it as any client's turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message as Event
from starlette.types import Receive, Scope, Send

from afterwit.dialects.table import dialect_of
from afterwit.errors import RequestError, TurnNotFound
from afterwit.gateway.auth import Caller
from afterwit.gateway.context import CALLER, HEADERS, STORE_WITHIN_S, Gateway
from afterwit.gateway.endpoint import ModelEndpoint
from afterwit.page.access import Access
from afterwit.store import Store
from afterwit.turn import Message

PATH = "/v1/chat/completions"
CLIENT = "afterwit-page"
"""The client in the scopes of its turns."""


def base_url(request: Request) -> str:
    """The base URL for clients, as the browser reaches the gateway."""
    return f"{request.url.scheme}://{request.url.netloc}/v1"


class Chat:
    """Answers with the key of a visit, which needs the scope `chat`, as every client's does."""

    def __init__(self, gateway: Gateway, access: Access) -> None:
        self._gateway, self._access = gateway, access
        self._endpoint = ModelEndpoint(gateway, dialect_of(PATH, gateway.dialects))

    async def ask(self, request: Request) -> Response | Asked:
        """The answer as a stream, to the words alone or `after` a turn of a chat on this page.

        Raises 400 without words, 403 for another visit's form, 404 for a turn of no chat of this key's.
        """
        caller = self._access.caller(request)
        if caller is None:
            return self._access.sign_in_page(request)
        fields = await self._access.form(request)
        words = fields.get("words", "").replace("\r\n", "\n").strip()
        if not words:
            raise RequestError(400, "invalid_value", "Type what the model should answer.", param="words")
        after = fields.get("after")
        earlier = await self._said(after, caller) if after else ()
        messages = [*earlier, Message(role="user", content=words)]
        body = {"model": self._gateway.names[0], "messages": [each.to_dict() for each in messages]}
        return Asked(self._endpoint, caller, body | {"stream": True})

    async def _said(self, turn: str, caller: Caller) -> Sequence[Message]:
        """Everything up to a turn's answer."""

        def read(store: Store) -> Sequence[Message]:
            found = store.turn(turn).turn
            if found.scope != f"{caller.name}/{CLIENT}":
                raise TurnNotFound(f"{caller.name!r} has no chat with a turn {turn}")
            return (*found.conversation.messages, found.message)

        try:
            return await self._gateway.read(read, within_s=STORE_WITHIN_S)
        except TurnNotFound as error:
            message = "This conversation is gone, or belongs to another key: begin a new one."
            raise RequestError(404, "turn_not_found", message, param="after") from error


class Asked:
    """A response: the endpoint's, as if a client had sent this body with this caller's key."""

    def __init__(self, endpoint: ModelEndpoint, caller: Caller, body: dict[str, Any]) -> None:
        self._endpoint, self._caller, self._body = endpoint, caller, orjson.dumps(body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = False
        headers = {"user-agent": CLIENT, "content-type": "application/json"}

        async def received() -> Event:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": self._body, "more_body": False}

        await self._endpoint({**scope, CALLER: self._caller, HEADERS: headers}, received, send)
