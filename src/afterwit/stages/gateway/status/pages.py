"""The pages beside the model: served models, health, metrics."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from afterwit import __version__
from afterwit.core.errors import RequestError, StoreError
from afterwit.stages.gateway.auth import Permission
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.middleware import CALLER
from afterwit.stages.gateway.status.health import health_of
from afterwit.stages.judge_checks import judge_shares
from afterwit.stages.tracking import Newest, newest
from afterwit.store import Counts, Pause, Status

T = TypeVar("T")

EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"

PATIENCE_S = 2.0
"""Seconds that a page waits for the store: a probe does not wait for ever."""


class Pages:
    """Endpoints that only read."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def root(self, request: Request) -> Response:
        """Name and version: some agents ask before they send a request. A browser is led to the page."""
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/ui", status_code=303)
        return JSONResponse({"name": "afterwit", "version": __version__})

    async def models(self, request: Request) -> Response:
        names = self._gateway.names
        page = {"has_more": False, "first_id": names[0], "last_id": names[-1]}
        return JSONResponse({"object": "list", "data": [self._model(name) for name in names], **page})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._gateway.names:
            raise RequestError(
                404, "model_not_found", f"The model {name!r} is not served here.", param="model"
            )
        return JSONResponse(self._model(name))

    async def alive(self, request: Request) -> Response:
        """The process answers."""
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Whether it serves, and the health of every stage for callers with the scope `read`."""
        caller = request.scope[CALLER]
        health = health_of(self._gateway, *await self._statuses())
        reads = caller is not None and caller.may(Permission.READ)
        return JSONResponse(health.to_dict(details=reads), status_code=200 if health.serving else 503)

    async def metrics(self, request: Request) -> Response:
        """Prometheus' exposition text."""
        request.scope[CALLER].require(Permission.READ)
        health = health_of(self._gateway, *await self._statuses())
        counts, shares, learned = await self._counts()
        text = self._gateway.metrics.scrape(
            in_flight=self._gateway.in_flight.count,
            version=self._gateway.engine.version,
            turns=_turns(counts),
            invalid_votes=counts.invalid_votes,
            stages=health.stages,
            judge=shares,
            learned=learned,
        )
        return Response(text, media_type=EXPOSITION)

    def _model(self, name: str) -> dict[str, Any]:
        """A model as the clients of every dialect read it."""
        length, started = self._gateway.engine.facts.context_length, int(self._gateway.started)
        return {
            "id": name,
            "object": "model",
            "created": started,
            "owned_by": "afterwit",
            "context_length": length,
            "max_model_len": length,
            "type": "model",
            "display_name": name,
            "created_at": datetime.fromtimestamp(started, UTC).isoformat(),
            "max_input_tokens": length,
        }

    async def _statuses(self) -> tuple[list[Status] | StoreError, Pause | None]:
        try:
            return await self._gateway.read(
                lambda store: (store.statuses(), store.paused()), within_s=PATIENCE_S
            )
        except StoreError as error:
            return error, None

    async def _counts(self) -> tuple[Counts, Mapping[str, float], Newest]:
        """What the store counts, what the judge's last check said and what was learned; nothing if it cannot
        be asked."""
        try:
            return await self._gateway.read(
                lambda store: (store.counts(), judge_shares(store), newest(store)), within_s=PATIENCE_S
            )
        except StoreError:
            return Counts(), {}, Newest()


def _turns(counts: Counts) -> dict[tuple[str, str], int]:
    """(state, reason) -> count; the skipped ones by reason."""
    skipped = {("SKIPPED", str(reason)): count for reason, count in counts.reasons.items()}
    states = {(str(state), ""): count for state, count in counts.states.items() if state != "SKIPPED"}
    return states | skipped
