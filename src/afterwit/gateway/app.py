"""The gateway's ASGI application: endpoints behind the middleware."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from afterwit.adapters import AdapterPolicy
from afterwit.chat_format.families import AUTO, NO_CALLS, unknown_template
from afterwit.chat_format.render import Renderer
from afterwit.dialects.dialect import Dialect, ExtraRoute, StoredResponses, TokenCount
from afterwit.dialects.table import DIALECTS, dialect_of
from afterwit.engines.port import Engine
from afterwit.errors import RequestError
from afterwit.gateway.auth import KeyCache
from afterwit.gateway.context import Deliveries, Gateway
from afterwit.gateway.endpoint import ModelEndpoint
from afterwit.gateway.feedback import FeedbackEndpoint
from afterwit.gateway.limits import InFlight
from afterwit.gateway.metrics import Metrics
from afterwit.gateway.middleware import Middleware
from afterwit.gateway.other_endpoints import StoredResponsesEndpoint, TokenCountEndpoint
from afterwit.gateway.settings import GatewaySettings
from afterwit.gateway.status import Pages
from afterwit.page.app import UserPage
from afterwit.page.html import Controls
from afterwit.store import AsyncStore

log = logging.getLogger("afterwit.gateway")


READERS = 4
"""Threads that read and render long requests. The event loop waits its turn among them."""


class GatewayApp:
    """The gateway as an ASGI application."""

    def __init__(self, gateway: Gateway, controls: Controls | None) -> None:
        self.gateway = gateway
        self._app: ASGIApp = Middleware(_router(gateway, controls), gateway)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # with an app in the scope, the router raises what it refuses, and the middleware answers it
        scope["app"] = self
        await self._app(scope, receive, send)

    @property
    def in_flight(self) -> InFlight:
        """Requests that are not answered yet: drain them before the server stops."""
        return self.gateway.in_flight

    def error_body(self, path: str, error: RequestError) -> Mapping[str, Any]:
        """The JSON body of an error at a path, in the dialect of that path."""
        return dialect_of(path, self.gateway.dialects).error_body(error)


def build_app(
    engine: Engine,
    renderer: Renderer,
    store: AsyncStore,
    settings: GatewaySettings,
    *,
    dialects: tuple[Dialect, ...] = DIALECTS,
    adapters: AdapterPolicy = AdapterPolicy(),
    controls: Controls | None = None,
    wake_judge: Callable[[], None] = lambda: None,
    servers: Callable[[], Mapping[str, str]] = dict,
    now: Callable[[], float] = time.time,
    entropy: Callable[[int], bytes] = os.urandom,
) -> GatewayApp:
    """The gateway over an engine and a store. It calls `wake_judge` when a turn was answered.

    `servers` says why one that this process started is gone, by its name.

    `controls` are the buttons of its page; without them the page only shows.
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
    return GatewayApp(gateway, controls)


def _dialect_routes(gateway: Gateway, dialect: Dialect) -> Iterator[Route]:
    yield Route(dialect.path, ModelEndpoint(gateway, dialect), methods=["POST"])
    for extra in dialect.extra_routes:
        yield _extra_route(gateway, extra)


def _extra_route(gateway: Gateway, extra: ExtraRoute) -> Route:
    match extra:
        case TokenCount():
            return Route(extra.path, TokenCountEndpoint(gateway, extra), methods=["POST"])
        case StoredResponses():
            return Route(extra.path, StoredResponsesEndpoint(gateway, extra), methods=["GET"])


def _router(gateway: Gateway, controls: Controls | None) -> Router:
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
        *UserPage(gateway, controls).routes(),
    ]
    return Router(routes, redirect_slashes=False)
