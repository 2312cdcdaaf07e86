"""The page's routes: who may see it, what is read for it, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from afterwit.core.errors import AfterwitError, RequestError, StoreError, StoreUnavailable, TurnNotFound
from afterwit.stages.gateway.auth import Caller, Permission, hash_key
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.middleware import CALLER
from afterwit.stages.gateway.page import html
from afterwit.stages.gateway.page.controls import Controls
from afterwit.stages.gateway.page.forms import read_form
from afterwit.stages.gateway.page.views import (
    NotFound,
    View,
    curves,
    log,
    overview,
    sessions,
    turns,
    versions,
)
from afterwit.stages.gateway.page.visits import COOKIE, LIFE_S, Visits
from afterwit.store import Store

T = TypeVar("T")

PATIENCE_S = 5.0
"""Seconds that the page waits for the store."""
SIGN_IN = "sign_in.html"

VIEWS: Mapping[str, View] = {
    "/ui": overview.view,
    "/ui/sessions": sessions.view,
    "/ui/sessions/{session:path}": sessions.one,
    "/ui/turns": turns.view,
    "/ui/turns/{turn}": turns.one,
    "/ui/versions": versions.view,
    "/ui/versions/{version:int}": versions.one,
    "/ui/curves": curves.view,
    "/ui/log": log.view,
}


class UserPage:
    """Everything below `/ui`. It needs the scope `read`; its buttons need `admin`."""

    def __init__(self, gateway: Gateway, controls: Controls | None) -> None:
        """Without `controls`, the page only shows."""
        self._gateway, self._controls = gateway, controls
        self._visits = Visits(gateway.now)

    def routes(self) -> list[Route]:
        """All of them; the last answers for every other address, so that nobody learns which there are."""
        return [
            Route("/ui/static/{name}", self._static),
            Route("/ui/sign-in", self._sign_in, methods=["POST"]),
            Route("/ui/sign-out", self._sign_out, methods=["POST"]),
            Route("/ui/versions/{version:int}/rollback", self._roll_back, methods=["POST"]),
            *(Route(path, self._shown(view)) for path, view in VIEWS.items()),
            Route(
                "/ui/{rest:path}", self._shown(_nothing), methods=["GET", "POST", "PUT", "DELETE", "PATCH"]
            ),
        ]

    def _shown(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            caller = self._caller(request)
            if caller is None:
                return self._way_in(request)
            try:
                wanted = view(request, self._gateway)
                found = await self._read(wanted.read)
            except (NotFound, TurnNotFound) as error:
                return self._message(request, caller, 404, "There is nothing here", str(error))
            except StoreError as error:
                return self._message(request, caller, 503, "The store does not answer", str(error))
            facts = {**self._frame(request, caller), **found}
            text = await asyncio.get_running_loop().run_in_executor(
                self._gateway.readers, html.rendered, wanted.template, facts
            )
            return html.html(text)

        return endpoint

    async def _read(self, work: Callable[[Store], T]) -> T:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._gateway.store.call(work)
        except TimeoutError as error:
            raise StoreUnavailable(f"no answer within {PATIENCE_S:g} seconds") from error

    def _caller(self, request: Request) -> Caller | None:
        """Who asks, if they may see the page."""
        caller: Caller | None = request.scope[CALLER]
        if caller is None:
            key_hash = self._visits.key_hash(request.cookies.get(COOKIE))
            caller = None if key_hash is None else self._gateway.keys.holder(key_hash)
        return caller if caller is not None and caller.may(Permission.READ) else None

    def _frame(self, request: Request, caller: Caller) -> dict[str, Any]:
        """What every page shows around its own."""
        return {
            "path": request.url.path,
            "form_token": self._visits.form_token(request.cookies.get(COOKIE)),
            "steers": caller.may(Permission.ADMIN) and self._controls is not None,
            "signed_in": caller.name if self._gateway.keys.keyed else None,
            "serving": self._gateway.engine.version,
            "model": self._gateway.engine.facts.model,
        }

    def _message(self, request: Request, caller: Caller, status: int, title: str, words: str) -> Response:
        facts = {**self._frame(request, caller), "title": title, "words": words}
        return html.html(html.rendered("message.html", facts), status=status)

    def _way_in(self, request: Request, *, refused: bool = False) -> Response:
        """The same for every address, whatever is there, and for every key that does not open it."""
        token = self._visits.form_token(request.cookies.get(COOKIE))
        text = html.rendered(SIGN_IN, {"form_token": token, "refused": refused})
        return html.html(text, status=401)

    async def _static(self, request: Request) -> Response:
        found = html.static_file(request.path_params["name"])
        if found is None:
            raise RequestError(404, "unknown_route", "The page has no such file.")
        content, kind = found
        headers = {**html.HEADERS, "cache-control": "public, max-age=31536000, immutable"}
        return Response(content, media_type=kind, headers=headers)

    async def _form(self, request: Request) -> Mapping[str, str]:
        """The fields of a form that this page made for this visit. Raises 403 for any other."""
        fields = await read_form(request, pause_s=self._gateway.settings.body_timeout_s)
        if not self._visits.is_form_token(fields.get("form", ""), request.cookies.get(COOKIE)):
            message = "This form was made for another visit, or before a restart: load the page again."
            raise RequestError(403, "foreign_form", message)
        return fields

    async def _sign_in(self, request: Request) -> Response:
        fields = await self._form(request)
        key_hash = hash_key(fields.get("key", "").strip())
        caller = self._gateway.keys.holder(key_hash)
        if caller is None or not caller.may(Permission.READ):
            return self._way_in(request, refused=True)
        response = _see("/ui")
        response.set_cookie(
            COOKIE,
            self._visits.begin(key_hash),
            max_age=LIFE_S,
            path="/ui",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    async def _sign_out(self, request: Request) -> Response:
        await self._form(request)
        self._visits.end(request.cookies.get(COOKIE))
        response = _see("/ui")
        response.delete_cookie(COOKIE, path="/ui", httponly=True, samesite="strict")
        return response

    async def _roll_back(self, request: Request) -> Response:
        """Take learning back to a version."""
        caller = self._caller(request)
        if caller is None:
            return self._way_in(request)
        await self._form(request)
        target = request.path_params["version"]
        if self._controls is None or not caller.may(Permission.ADMIN):
            words = "Taking learning back needs a key with the scope `admin`."
            return self._message(request, caller, 403, "This key only looks", words)
        try:
            made = await self._controls.roll_back(target)
        except AfterwitError as error:
            return self._message(request, caller, 409, "Nothing was changed", str(error))
        return _see(f"/ui/versions?made={quote(str(made.number))}")


def _see(path: str) -> Response:
    """The answer to a form: another page is to be loaded."""
    return RedirectResponse(path, status_code=303, headers={**html.HEADERS, "cache-control": "no-store"})


def _nothing(request: Request, gateway: Gateway) -> Any:
    raise NotFound("The page has nothing at this address.")
