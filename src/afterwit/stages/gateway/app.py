"""The gateway's application: put together from its neighbours, served by any ASGI server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from afterwit.engines.port import Engine
from afterwit.stages.gateway.auth.key_cache import KeyCache
from afterwit.stages.gateway.completions import Completions
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.feedback import FeedbackEndpoint
from afterwit.stages.gateway.http.in_flight import InFlight
from afterwit.stages.gateway.middleware import Middleware
from afterwit.stages.gateway.settings import GatewaySettings
from afterwit.stages.gateway.status.metrics import Metrics
from afterwit.stages.gateway.status.pages import Pages
from afterwit.store import AsyncStore
from afterwit.wire.model_text.render import Renderer


class GatewayApp:
    """An ASGI application with a gate that can be closed: `drain` before the server stops."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._app: ASGIApp = Middleware(_router(gateway), gateway)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # with it the router raises what it refuses, and the door says it in our words
        await self._app(scope, receive, send)

    async def drain(self) -> None:
        """Refuse new requests with 503; return when the running ones have ended."""
        await self.gateway.in_flight.drain()


def build_app(
    engine: Engine,
    renderer: Renderer,
    store: AsyncStore,
    settings: GatewaySettings,
    *,
    wake_judge: Callable[[], None] = lambda: None,
    now: Callable[[], float] = time.time,
    entropy: Callable[[int], bytes] = os.urandom,
) -> GatewayApp:
    """The gateway over an engine and a store. `wake_judge` is called when a turn was answered."""
    keys = KeyCache(
        lambda: store.call(lambda opened: opened.keys()), refresh_s=settings.key_refresh_s, now=now
    )
    gateway = Gateway(
        engine=engine,
        renderer=renderer,
        store=store,
        settings=settings,
        keys=keys,
        in_flight=InFlight(settings.max_requests),
        metrics=Metrics(),
        wake_judge=wake_judge,
        now=now,
        entropy=entropy,
        started=now(),
    )
    return GatewayApp(gateway)


def _router(gateway: Gateway) -> Router:
    pages = Pages(gateway)
    routes = [
        Route("/v1/chat/completions", Completions(gateway), methods=["POST"]),
        Route("/v1/feedback", FeedbackEndpoint(gateway), methods=["POST"]),
        Route("/v1/models", pages.models),
        Route("/v1/models/{name:path}", pages.model),
        Route("/healthz", pages.alive),
        Route("/readyz", pages.ready),
        Route("/metrics", pages.metrics),
        Route("/", pages.root),
    ]
    return Router(routes, redirect_slashes=False)
