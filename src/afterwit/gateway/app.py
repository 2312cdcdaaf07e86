"""The gateway's ASGI application: its routes, and the checks, errors and log lines around each request."""

from __future__ import annotations

import logging
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from random import getrandbits
from time import perf_counter
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from afterwit.adapters import AdapterPolicy
from afterwit.chat_format.families import AUTO, NO_CALLS, unknown_template
from afterwit.chat_format.render import Renderer
from afterwit.dialects.dialect import Dialect, TokenCount
from afterwit.dialects.table import DIALECTS, dialect_of, meant_by
from afterwit.engines.port import Engine
from afterwit.errors import RequestError
from afterwit.gateway.auth import KeyCache, check_host, check_origin, sent_key
from afterwit.gateway.context import CALLER, HEADERS, Deliveries, Gateway
from afterwit.gateway.endpoint import ModelEndpoint, StoredResponsesEndpoint, TokenCountEndpoint
from afterwit.gateway.feedback import FeedbackEndpoint
from afterwit.gateway.limits import INTERNAL, InFlight, send_error
from afterwit.gateway.settings import GatewaySettings
from afterwit.gateway.status import Metrics, Pages
from afterwit.page.app import RollBack, UserPage
from afterwit.store import AsyncStore

log = logging.getLogger("afterwit.gateway")

READERS = 4
"""Threads that read and render long requests. The event loop waits its turn among them."""

ALLOW = "afterwit.allow"
"""ASGI scope key of the `Allow` header of a 405."""

OPEN_PATHS = frozenset({"/", "/healthz", "/readyz"})
"""Paths that need no key: probes have none."""

PAGE = "/ui"
"""The page for people and what is below it need no key here: a browser signs in there."""

LONGEST_SHOWN = 120
"""Characters of a client's path in the log and in errors."""


class GatewayApp:
    """The gateway as an ASGI application.

    It checks Host, Origin and key, answers errors in JSON, and logs a line for each request: nothing that was
    said, and a path only if no route has it, cut and escaped.
    """

    def __init__(self, gateway: Gateway, roll_back: RollBack | None) -> None:
        self.gateway = gateway
        self._router = _router(gateway, roll_back)

    @property
    def in_flight(self) -> InFlight:
        """Requests without a complete response: drain them before the server stops."""
        return self.gateway.in_flight

    def error_body(self, path: str, error: RequestError) -> Mapping[str, Any]:
        """The JSON body of an error at a path, in the dialect of that path."""
        return dialect_of(path, self.gateway.dialects).error_body(error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        scope["app"] = self  # so that the router raises its 404 and 405
        started = perf_counter()
        status = 0
        dialect = dialect_of(scope["path"], self.gateway.dialects)
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
        log.info("%s %s %d %.1f ms %s", method, where, status, millis, request_id)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> RequestError | None:
        """Serve the request. Returns the error to answer with, None if it was answered."""
        try:
            await self._admit(scope)
            await self._router(scope, receive, send)
        except RequestError as error:
            return error
        except HTTPException as error:
            scope[ALLOW] = [(b"allow", methods.encode()) for methods in (error.headers or {}).values()]
            return _routing_error(error, scope, meant_by(scope["path"], self.gateway.dialects))
        except ClientDisconnect:
            return None
        except Exception as error:  # the boundary: our own fault, and the server goes on
            frames = "".join(traceback.format_tb(error.__traceback__))
            # the exception's message may quote a conversation
            log.error("%s in %s\n%s", type(error).__name__, scope["method"], frames)
            return INTERNAL
        return None

    async def _admit(self, scope: Scope) -> None:
        """Put the caller into the scope. Raises 401 and 403."""
        gateway = self.gateway
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


def build_app(
    engine: Engine,
    renderer: Renderer,
    store: AsyncStore,
    settings: GatewaySettings,
    *,
    dialects: tuple[Dialect, ...] = DIALECTS,
    adapters: AdapterPolicy = AdapterPolicy(),
    roll_back: RollBack | None = None,
    wake_judge: Callable[[], None] = lambda: None,
    servers: Callable[[], Mapping[str, str]] = dict,
    now: Callable[[], float] = time.time,
    entropy: Callable[[int], bytes] = os.urandom,
) -> GatewayApp:
    """The gateway over an engine and a store.

    It calls `wake_judge` when a turn got its next state. `servers` returns why a server that this process
    started is gone, by name. `roll_back` takes learning back; without it the page has no buttons.
    """
    if not renderer.reads_only_what_is_new:
        log.warning(
            "this model's prompts cannot be cut at special tokens: each is tokenised whole, which takes "
            "longer the longer a session is"
        )
    if renderer.convention is NO_CALLS and settings.tool_call_parser == AUTO:
        log.warning("%s", unknown_template(renderer.template_source))
    keys = KeyCache(
        lambda: store.call(lambda opened: opened.keys()), refresh_s=settings.key_refresh_s, now=now
    )
    gateway = Gateway(
        engine=engine,
        renderer=renderer,
        store=store,
        deliveries=Deliveries(store),
        dialects=dialects,
        settings=settings,
        adapters=adapters,
        keys=keys,
        in_flight=InFlight(settings.max_requests, settings.max_pending_bytes),
        metrics=Metrics(),
        readers=ThreadPoolExecutor(READERS, thread_name_prefix="afterwit-read"),
        wake_judge=wake_judge,
        servers=servers,
        now=now,
        entropy=entropy,
        started=now(),
    )
    return GatewayApp(gateway, roll_back)


def _router(gateway: Gateway, roll_back: RollBack | None) -> Router:
    pages = Pages(gateway)
    routes = [
        *(route for dialect in gateway.dialects for route in _dialect_routes(gateway, dialect)),
        Route("/v1/feedback", FeedbackEndpoint(gateway), methods=["POST"]),
        Route("/v1/models", pages.models),
        Route("/v1/models/{name:path}", pages.model),
        Route("/healthz", pages.alive),
        Route("/readyz", pages.ready),
        Route("/metrics", pages.metrics),
        Route("/", pages.root),
        *UserPage(gateway, roll_back).routes(),
    ]
    return Router(routes, redirect_slashes=False)


def _dialect_routes(gateway: Gateway, dialect: Dialect) -> Iterator[Route]:
    yield Route(dialect.path, ModelEndpoint(gateway, dialect), methods=["POST"])
    for extra in dialect.extra_routes:
        if isinstance(extra, TokenCount):
            yield Route(extra.path, TokenCountEndpoint(gateway, extra), methods=["POST"])
        else:
            yield Route(extra.path, StoredResponsesEndpoint(gateway, extra), methods=["GET"])


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
