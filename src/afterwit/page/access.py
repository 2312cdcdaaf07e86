"""Sign-in, visits and form tokens of the page."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from afterwit.errors import RequestError
from afterwit.gateway.auth import Caller, Permission, hash_key
from afterwit.gateway.context import CALLER, Gateway
from afterwit.page import html

TOKEN = "token"
"""The parameter of an address that opens the page."""
UNFIT_KEY = "This key does not open the page. It takes a key with the scope read or admin."
FORM_BYTES, FORM_FIELDS = 128 * 2**10, 32
FORM_TYPE = "application/x-www-form-urlencoded"
VISIT_S = 12 * 3600
"""Seconds that a visit lasts."""
MOST_VISITS = 256
"""Concurrent visits; one more ends the oldest."""
HOME = "/ui"
LOCAL_VISIT = "local"
"""The visit of forms without sign-in."""


class Access:
    """Admits callers who may read: by a key in a header, or by a visit that began with one."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._secret = secrets.token_bytes(32)
        self._visits: dict[str, tuple[str, float]] = {}
        """The hash of the key that a visit began with, and the visit's end, by the hash of its cookie."""

    def caller(self, request: Request) -> Caller | None:
        """The caller, or None if they may not see the page."""
        caller: Caller | None = request.scope[CALLER]
        if caller is None or not caller.may(Permission.READ):
            key_hash, until = self._visits.get(_visit(request), ("", 0.0))
            caller = self._gateway.keys.holder(key_hash) if until >= self._gateway.now() else None
        return caller if caller is not None and caller.may(Permission.READ) else None

    def sign_in_page(
        self, request: Request, *, problem: str | None = None, status: int = 401, then: str | None = None
    ) -> Response:
        """The same for every address, to which it leads back, and for every unfit key: it reveals nothing."""
        keyed = self._gateway.keys.keyed
        if then is None:
            then = _without_token(request) if request.method == "GET" else HOME
        facts = {"form_token": self.form_token(request), "problem": problem, "keyed": keyed, "then": then}
        text = html.rendered("sign_in.html", facts)
        return html.html(text, status=status)

    def form_token(self, request: Request) -> str:
        """The token of this visit's forms, which a page of another site cannot read."""
        visit = request.cookies.get(_cookie_name(request)) or LOCAL_VISIT
        return hmac.new(self._secret, visit.encode(), hashlib.sha256).hexdigest()

    async def form(self, request: Request) -> Mapping[str, str]:
        """The fields of a form made for this visit. Raises 403 for any other."""
        async with self._gateway.in_flight.receiving():
            fields = await read_form(request, pause_s=self._gateway.settings.body_timeout_s)
        if not hmac.compare_digest(fields.get("form", "").encode(), self.form_token(request).encode()):
            message = "This form was made for another visit, or before a restart: load the page again."
            raise RequestError(403, "foreign_form", message)
        return fields

    async def sign_in(self, request: Request) -> Response:
        """Begin a visit with a key. A refused form returns the sign-in page with the reason."""
        try:
            fields = await self.form(request)
        except RequestError as error:
            return self.sign_in_page(request, problem=error.message, status=error.status)
        then = fields.get("then", HOME)
        if not then.startswith((f"{HOME}/", f"{HOME}?")) or then.startswith(f"{HOME}/sign-"):
            then = HOME
        return self._begin(request, fields.get("key", "").strip(), then=then)

    def enter(self, request: Request) -> Response | None:
        """Begin a visit by the token in an address, which then leaves the address. None if it has none."""
        token = request.query_params.get(TOKEN)
        return None if token is None else self._begin(request, token, then=_without_token(request))

    def _begin(self, request: Request, key: str, *, then: str) -> Response:
        key_hash = hash_key(key)
        caller = self._gateway.keys.holder(key_hash)
        if caller is None or not caller.may(Permission.READ):
            return self.sign_in_page(request, problem=UNFIT_KEY, then=then)
        while len(self._visits) >= MOST_VISITS:
            del self._visits[next(iter(self._visits))]
        cookie = secrets.token_urlsafe(32)
        self._visits[_hash(cookie)] = (key_hash, self._gateway.now() + VISIT_S)
        response = see(then)
        response.set_cookie(_cookie_name(request), cookie, max_age=VISIT_S, **_cookie_of(request))
        return response

    async def sign_out(self, request: Request) -> Response:
        try:
            await self.form(request)
        except RequestError as error:
            return self.sign_in_page(request, problem=error.message, status=error.status)
        self._visits.pop(_visit(request), None)
        response = see(HOME)
        response.delete_cookie(_cookie_name(request), **_cookie_of(request))
        return response


def _visit(request: Request) -> str:
    return _hash(request.cookies.get(_cookie_name(request)) or "")


def _cookie_name(request: Request) -> str:
    """By port: browsers send a host's cookies to all its ports, where another gateway would replace it."""
    return f"afterwit-page-{request.scope['server'][1]}"


def _without_token(request: Request) -> str:
    """The request's address, whose query loses the token."""
    query = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != TOKEN])
    return quote(request.url.path) + (f"?{query}" if query else "")


def _hash(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()


def _cookie_of(request: Request) -> dict[str, Any]:
    """Scripts and other sites do not get the cookie; after TLS, plain HTTP does not either."""
    secure = request.url.scheme == "https"
    return {"path": "/ui", "httponly": True, "samesite": "strict", "secure": secure}


def see(path: str) -> Response:
    """The answer to a form: a redirect."""
    return RedirectResponse(path, status_code=303, headers={**html.HEADERS, "cache-control": "no-store"})


async def read_form(request: Request, *, pause_s: float) -> Mapping[str, str]:
    """The fields, each with its first value. Raises 408, 413 and 415."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise RequestError(415, "unsupported_media_type", f"A form sends {FORM_TYPE}.")
    data = bytearray()
    try:
        async with asyncio.timeout(pause_s):
            async for piece in request.stream():
                data += piece
                if len(data) > FORM_BYTES:
                    raise RequestError(413, "request_too_large", "The form is too large.")
    except TimeoutError as error:
        raise RequestError(408, "body_timeout", "The form did not arrive in time.") from error
    try:
        fields = parse_qs(data.decode(errors="replace"), keep_blank_values=True, max_num_fields=FORM_FIELDS)
    except ValueError as error:
        raise RequestError(413, "request_too_large", "The form has too many fields.") from error
    return {name: values[0] for name, values in fields.items()}
