"""ASGI middleware: checks Host, Origin and key, answers errors in JSON, writes a line of log per request."""

from __future__ import annotations

import logging
import traceback
from random import getrandbits
from time import perf_counter

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from afterwit.dialects.dialect import Dialect
from afterwit.dialects.table import dialect_of, meant_by
from afterwit.errors import RequestError
from afterwit.gateway.auth import check_host, check_origin, sent_key
from afterwit.gateway.context import Gateway
from afterwit.gateway.limits import INTERNAL, send_error

CALLER = "afterwit.caller"
"""ASGI scope key of the request's caller; None for a probe without a key."""


HEADERS = "afterwit.headers"
"""ASGI scope key of the headers as text: names in lower case; of a header sent twice, the last."""


ALLOW = "afterwit.allow"
"""ASGI scope key of the `Allow` header of a 405."""


OPEN_PATHS = frozenset({"/", "/healthz", "/readyz"})
"""Paths that need no key: probes have none."""


PAGE = "/ui"
"""The page for people and what is below it need no key here: a browser signs in there."""


REQUEST_PREFIX = "req_"
"""What the id of a request begins with."""


LONGEST_SHOWN = 120
"""Characters of a client's path."""


log = logging.getLogger("afterwit.gateway")


class Middleware:
    """Never logs what was said. A path is logged only if no route has it, cut and escaped."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self._gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = perf_counter()
        status = 0
        dialect = dialect_of(scope["path"], self._gateway.dialects)
        request_id = f"{REQUEST_PREFIX}{getrandbits(128):032x}"
        identified = (dialect.request_id_header.encode(), request_id.encode())

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), identified]}
            await send(message)

        error = await self._enter(scope, receive, watched)
        if error is not None and not status:
            await self._refuse(scope, watched, error, dialect)
        self._note(scope, status, perf_counter() - started, request_id)

    async def _refuse(self, scope: Scope, send: Send, error: RequestError, dialect: Dialect) -> None:
        retry_after_s = self._gateway.settings.retry_after_s
        await send_error(send, error, dialect, scope.get(ALLOW, ()), retry_after_s=retry_after_s)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> RequestError | None:
        """Serve the request. Returns the error to answer with, None if it was answered."""
        try:
            await self._admit(scope)
            await self._app(scope, receive, send)
        except RequestError as error:
            return error
        except HTTPException as error:
            scope[ALLOW] = [(b"allow", methods.encode()) for methods in (error.headers or {}).values()]
            return _routing_error(error, scope, meant_by(scope["path"], self._gateway.dialects))
        except ClientDisconnect:
            return None
        except Exception as error:  # the boundary: our own fault, and the server goes on
            frames = "".join(traceback.format_tb(error.__traceback__))
            # the exception's own words may quote a conversation
            log.error("%s in %s\n%s", type(error).__name__, scope["method"], frames)
            return INTERNAL
        return None

    async def _admit(self, scope: Scope) -> None:
        """Put the caller into the scope. Raises 401 and 403."""
        gateway = self._gateway
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        scope[HEADERS] = headers
        await gateway.keys.refresh()
        host = headers.get("host")
        check_host(host, gateway.settings.allowed_hosts, keyed=gateway.keys.keyed)
        check_origin(headers.get("origin"), host, gateway.settings.allowed_origins)
        key = sent_key(headers.get("authorization"), headers.get("x-api-key"))
        client = (scope.get("client") or (None,))[0]
        is_open = _is_open(scope["path"])
        caller = gateway.keys.caller(None if is_open and key is None else key, client)
        if caller is None and not is_open:
            message = "Send an API key: Authorization: Bearer aw-..., or x-api-key: aw-..."
            raise RequestError(401, "invalid_api_key", message)
        scope[CALLER] = caller

    def _note(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = getattr(scope.get("route"), "path", None)
        self._gateway.metrics.request(route or "other", status)
        where = route or printable(scope["path"])
        method = printable(scope["method"])
        log.info("%s %s %d %.1f ms %s", method, where, status, seconds * 1000, request_id)


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path == PAGE or path.startswith(PAGE + "/")


def _routing_error(error: HTTPException, scope: Scope, meant: str | None) -> RequestError:
    path = printable(scope["path"])
    if error.status_code == 405:
        return RequestError(405, "method_not_allowed", f"{path} does not answer to {scope['method']}.")
    hint = "" if meant is None else f" {meant} is served: look at the client's base URL."
    return RequestError(error.status_code, "unknown_route", f"There is nothing at {path}.{hint}")


def printable(text: str) -> str:
    """A client's text for a line of a log: ASCII without control characters, cut to a length."""
    written = text[:LONGEST_SHOWN].encode("unicode_escape").decode()
    return written if len(text) <= LONGEST_SHOWN else written + "..."
