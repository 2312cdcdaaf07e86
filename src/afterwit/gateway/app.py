"""The gateway's ASGI application: its routes, and the checks, errors and log lines around each request."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Iterator, Mapping
from functools import partial
from random import getrandbits
from time import perf_counter
from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from afterwit.chat_format.families import AUTO, NO_CALLS, unknown_template
from afterwit.dialects.dialect import Dialect, TokenCount
from afterwit.dialects.table import dialect_of, meant_by
from afterwit.errors import RequestError
from afterwit.gateway.auth import check_host, check_origin, sent_key
from afterwit.gateway.context import CALLER, HEADERS, Gateway
from afterwit.gateway.endpoint import ModelEndpoint, count, stored
from afterwit.gateway.feedback import give_feedback
from afterwit.gateway.limits import INTERNAL, InFlight, send_error
from afterwit.gateway.status import Pages
from afterwit.page.app import RollBack, UserPage

log = logging.getLogger("afterwit.gateway")

ALLOW = "afterwit.allow"
"""ASGI scope key of the `Allow` header of a 405."""

OPEN_PATHS = frozenset({"/", "/healthz", "/readyz"})
"""Paths that need no key: probes have none."""

PAGE = "/ui"
"""The page for people and what is below it need no key here: a browser signs in there."""

LONGEST_SHOWN = 120
"""Characters of a client's path in the log and in errors."""

MOST_LINES, PERIOD_S = 20, 10.0
"""Log lines of one route and refusing status in a period of seconds; then the number of the others."""


class GatewayApp:
    """The gateway as an ASGI application. Without `roll_back` the page has no buttons.

    It checks Host, Origin and key, answers errors in JSON, and logs a line for each request, without its
    text, and with its path, cut and escaped, only if no route has it.
    """

    def __init__(self, gateway: Gateway, roll_back: RollBack | None = None) -> None:
        renderer, pages = gateway.renderer, Pages(gateway)
        if not renderer.reads_only_what_is_new:
            log.warning(
                "this model's prompts cannot be cut at special tokens: each is tokenised whole, which takes "
                "longer the longer a session is"
            )
        if renderer.convention is NO_CALLS and gateway.settings.tool_call_parser == AUTO:
            log.warning("%s", unknown_template(renderer.template_source))
        self.gateway = gateway
        routes = [
            *(route for dialect in gateway.dialects for route in _dialect_routes(gateway, dialect)),
            Route("/v1/feedback", partial(give_feedback, gateway), methods=["POST"]),
            Route("/v1/models", pages.models),
            Route("/v1/models/{name:path}", pages.model),
            Route("/healthz", pages.alive),
            Route("/readyz", pages.ready),
            Route("/metrics", pages.metrics),
            Route("/", pages.root),
            *UserPage(gateway, roll_back).routes(),
        ]
        self._router = Router(routes, redirect_slashes=False)
        self._paths = [route.path for route in routes]
        self._lines = FewLines(PERIOD_S)
        self._answer: ASGIApp = self._log_and_answer
        if origins := gateway.settings.allowed_origins:
            self._answer = CORSMiddleware(
                self._answer,
                allow_origins=origins,
                allow_methods=("GET", "POST"),
                allow_headers="*",
                expose_headers="*",
                allow_private_network=True,
            )

    @property
    def in_flight(self) -> InFlight:
        """Requests without a complete response: drain them before the server stops."""
        return self.gateway.in_flight

    def error_body(self, path: str, error: RequestError) -> Mapping[str, Any]:
        """The JSON body of an error at a path, in the dialect of that path."""
        return dialect_of(path, self.gateway.dialects).error_body(error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send)

    async def _log_and_answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        scope["app"] = self  # so that the router raises its 404 and 405
        started, status = perf_counter(), 0
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        scope[HEADERS] = headers
        dialect = dialect_of(scope["path"], self.gateway.dialects, headers)
        request_id = f"req_{getrandbits(128):032x}"
        identified = (dialect.request_id_header.encode(), request_id.encode())

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), identified]}
            await send(message)

        error = await self._enter(scope, receive, watched)
        if error is not None and not status:
            retry_after_s = self.gateway.settings.retry_after_s
            await send_error(watched, error, dialect, scope.get(ALLOW, ()), retry_after_s=retry_after_s)
        route = getattr(scope.get("route"), "path", None)
        self.gateway.metrics.request(route or "other", status)
        where, method = route or printable(scope["path"]), printable(scope["method"])
        millis = (perf_counter() - started) * 1000
        if status < 400 or self._lines.room(f"{route or 'other paths'} {status}"):
            log.info("%s %s %d %.1f ms %s", method, where, status, millis, request_id)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> RequestError | None:
        """Serve the request. Returns the error to answer with, None if it was answered."""
        try:
            await self._admit(scope)
            await self._router(scope, receive, send)
        except RequestError as error:
            return error
        except HTTPException as error:
            path = printable(scope["path"])
            if error.status_code == 405:
                scope[ALLOW] = [(b"allow", methods.encode()) for methods in (error.headers or {}).values()]
                message = f"{path} does not answer to {scope['method']}."
                return RequestError(405, "method_not_allowed", message)
            meant = meant_by(scope["path"], self._paths)
            hint = "" if meant is None else f" {meant} is served: look at the client's base URL."
            return RequestError(error.status_code, "unknown_route", f"There is nothing at {path}.{hint}")
        except ClientDisconnect:
            return None
        except Exception as error:  # the boundary: our own fault, and the server goes on
            frames = "".join(traceback.format_tb(error.__traceback__))
            if self._lines.room(type(error).__name__):  # its message may quote a conversation
                log.error("%s in %s\n%s", type(error).__name__, scope["method"], frames)
            return INTERNAL
        return None

    async def _admit(self, scope: Scope) -> None:
        """Put the caller into the scope. Raises 401 and 403."""
        settings, keys, path, headers = (
            self.gateway.settings,
            self.gateway.keys,
            scope["path"],
            scope[HEADERS],
        )
        await keys.refresh()
        host = headers.get("host")
        check_host(host, settings.allowed_hosts, keyed=keys.keyed)
        check_origin(headers.get("origin"), host, settings.allowed_origins)
        key = sent_key(headers.get("authorization"), headers.get("x-api-key"))
        scope[CALLER] = keys.caller(key, (scope.get("client") or (None,))[0])
        if scope[CALLER] is None and not (path in OPEN_PATHS or path == PAGE or path.startswith(PAGE + "/")):
            message = "Send an API key: Authorization: Bearer aw-..., or x-api-key: aw-..."
            raise RequestError(401, "invalid_api_key", message)


class FewLines:
    """Bounds the log lines of a kind in a period; its end logs how many were left out."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._counts: dict[str, int] = {}

    def room(self, kind: str) -> bool:
        """Whether one more line of the kind may be logged in this period, which its first line began."""

        def end() -> None:
            if (more := self._counts.pop(kind) - MOST_LINES) > 0:
                log.warning("%s: %d more in %g seconds", kind, more, self._period_s)

        if kind not in self._counts:
            asyncio.get_running_loop().call_later(self._period_s, end)
        self._counts[kind] = count = self._counts.get(kind, 0) + 1
        return count <= MOST_LINES


def _dialect_routes(gateway: Gateway, dialect: Dialect) -> Iterator[Route]:
    yield Route(dialect.path, ModelEndpoint(gateway, dialect), methods=["POST"])
    for extra in dialect.extra_routes:
        if isinstance(extra, TokenCount):
            yield Route(extra.path, partial(count, gateway, extra), methods=["POST"])
        else:
            yield Route(extra.path, partial(stored, gateway, extra))


def printable(text: str) -> str:
    """A client's text for a line of a log: ASCII without control characters, cut to a length."""
    written = text[:LONGEST_SHOWN].encode("unicode_escape").decode()
    return written if len(text) <= LONGEST_SHOWN else written + "..."
