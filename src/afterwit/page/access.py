"""Sign-in, visits and form tokens of the page."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from afterwit.errors import RequestError
from afterwit.gateway.auth import Caller, Permission, hash_key
from afterwit.gateway.context import CALLER, Gateway
from afterwit.page import html

UNFIT_KEY = "This key does not open the page. It takes a key with the scope read or admin."

FORM_BYTES = 16 * 2**10
FORM_FIELDS = 32
FORM_TYPE = "application/x-www-form-urlencoded"

COOKIE = "afterwit-page"

VISIT_S = 12 * 3600
"""Seconds that a visit lasts."""

MOST_VISITS = 256
"""Concurrent visits; one more ends the oldest."""

LOCAL_VISIT = "local"
"""The visit of forms without sign-in."""


class Access:
    """Admits callers who may read: by a key in a header, by a visit, or from this machine without keys."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._visits = Visits(gateway.now)

    def caller(self, request: Request) -> Caller | None:
        """The caller, or None if they may not see the page."""
        caller: Caller | None = request.scope[CALLER]
        if caller is None:
            key_hash = self._visits.key_hash(request.cookies.get(COOKIE))
            caller = None if key_hash is None else self._gateway.keys.holder(key_hash)
        return caller if caller is not None and caller.may(Permission.READ) else None

    def sign_in_page(self, request: Request, *, problem: str | None = None, status: int = 401) -> Response:
        """The same for every address and every unfit key, so that it reveals nothing."""
        text = html.rendered("sign_in.html", {"form_token": self.form_token(request), "problem": problem})
        return html.html(text, status=status)

    def form_token(self, request: Request) -> str:
        """The token of this visit's forms."""
        return self._visits.form_token(request.cookies.get(COOKIE))

    async def form(self, request: Request) -> Mapping[str, str]:
        """The fields of a form made for this visit. Raises 403 for any other."""
        fields = await read_form(request, pause_s=self._gateway.settings.body_timeout_s)
        if not self._visits.is_form_token(fields.get("form", ""), request.cookies.get(COOKIE)):
            message = "This form was made for another visit, or before a restart: load the page again."
            raise RequestError(403, "foreign_form", message)
        return fields

    async def sign_in(self, request: Request) -> Response:
        """Begin a visit with a key. A refused form returns the sign-in page with the reason."""
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
        response.set_cookie(COOKIE, cookie, max_age=VISIT_S, **_cookie_of(request))
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
    """The answer to a form: a redirect."""
    return RedirectResponse(path, status_code=303, headers={**html.HEADERS, "cache-control": "no-store"})


def _cookie_of(request: Request) -> dict[str, Any]:
    """Scripts and other sites do not get the cookie; after TLS, plain HTTP does not either."""
    secure = request.url.scheme == "https"
    return {"path": "/ui", "httponly": True, "samesite": "strict", "secure": secure}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Visit:
    key_hash: str
    until: float


class Visits:
    """Visits by the hash of their cookie."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._secret = secrets.token_bytes(32)
        self._open: dict[str, _Visit] = {}

    def begin(self, key_hash: str) -> str:
        """A cookie's value for the holder of a key."""
        cookie = secrets.token_urlsafe(32)
        while len(self._open) >= MOST_VISITS:
            del self._open[next(iter(self._open))]
        self._open[_hash(cookie)] = _Visit(key_hash=key_hash, until=self._now() + VISIT_S)
        return cookie

    def key_hash(self, cookie: str | None) -> str | None:
        """The hash of the key that a visit began with; None if there is no such visit now."""
        visit = None if cookie is None else self._open.get(_hash(cookie))
        return None if visit is None or visit.until < self._now() else visit.key_hash

    def end(self, cookie: str | None) -> None:
        if cookie is not None:
            self._open.pop(_hash(cookie), None)

    def form_token(self, cookie: str | None) -> str:
        """The token of this visit's forms, which a page of another site cannot read."""
        return hmac.new(self._secret, (cookie or LOCAL_VISIT).encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, token: str, cookie: str | None) -> bool:
        """Whether this process made a form for this visit."""
        return hmac.compare_digest(token.encode(), self.form_token(cookie).encode())


def _hash(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()
