"""Who may see the page, and whose forms it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from afterwit.core.errors import RequestError
from afterwit.stages.gateway.auth import Caller, Permission, hash_key
from afterwit.stages.gateway.context import Gateway
from afterwit.stages.gateway.middleware import CALLER
from afterwit.stages.gateway.page import html
from afterwit.stages.gateway.page.forms import read_form
from afterwit.stages.gateway.page.visits import COOKIE, LIFE_S, Visits

UNFIT_KEY = "This key does not open the page. It takes a key with the scope read or admin."


class Access:
    """Lets in who may read: by a key in a header, by a visit, or from this machine if there are no keys."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._visits = Visits(gateway.now)

    def caller(self, request: Request) -> Caller | None:
        """Who asks, if they may see the page."""
        caller: Caller | None = request.scope[CALLER]
        if caller is None:
            key_hash = self._visits.key_hash(request.cookies.get(COOKIE))
            caller = None if key_hash is None else self._gateway.keys.holder(key_hash)
        return caller if caller is not None and caller.may(Permission.READ) else None

    def sign_in_page(self, request: Request, *, problem: str | None = None, status: int = 401) -> Response:
        """The same for every address, whatever is there, and for every key that does not open it."""
        text = html.rendered("sign_in.html", {"form_token": self.form_token(request), "problem": problem})
        return html.html(text, status=status)

    def form_token(self, request: Request) -> str:
        """What the forms of this visit carry."""
        return self._visits.form_token(request.cookies.get(COOKIE))

    async def form(self, request: Request) -> Mapping[str, str]:
        """The fields of a form that this page made for this visit. Raises 403 for any other."""
        fields = await read_form(request, pause_s=self._gateway.settings.body_timeout_s)
        if not self._visits.is_form_token(fields.get("form", ""), request.cookies.get(COOKIE)):
            message = "This form was made for another visit, or before a restart: load the page again."
            raise RequestError(403, "foreign_form", message)
        return fields

    async def sign_in(self, request: Request) -> Response:
        """Begin a visit with a key. A form that is not taken leads back to the sign-in page, and says why."""
        try:
            fields = await self.form(request)
        except RequestError as error:
            return self.sign_in_page(request, problem=error.message, status=error.status)
        key_hash = hash_key(fields.get("key", "").strip())
        caller = self._gateway.keys.holder(key_hash)
        if caller is None or not caller.may(Permission.READ):
            return self.sign_in_page(request, problem=UNFIT_KEY)
        response = see("/ui")
        cookie = self._visits.begin(key_hash)
        response.set_cookie(COOKIE, cookie, max_age=LIFE_S, **_cookie_of(request))
        return response

    async def sign_out(self, request: Request) -> Response:
        """End a visit."""
        try:
            await self.form(request)
        except RequestError as error:
            return self.sign_in_page(request, problem=error.message, status=error.status)
        self._visits.end(request.cookies.get(COOKIE))
        response = see("/ui")
        response.delete_cookie(COOKIE, **_cookie_of(request))
        return response


def see(path: str) -> Response:
    """The answer to a form: another page is to be loaded."""
    return RedirectResponse(path, status_code=303, headers={**html.HEADERS, "cache-control": "no-store"})


def _cookie_of(request: Request) -> dict[str, Any]:
    """Neither scripts nor other sites get the cookie; over TLS, nor does plain HTTP."""
    secure = request.url.scheme == "https"
    return {"path": "/ui", "httponly": True, "samesite": "strict", "secure": secure}
