"""Who looks at the page: visits of signed-in browsers, and the tokens of their forms.

A browser sends no API key of its own. It signs in with one, and gets a cookie that names a visit here, not
the key: cookies reach every port of a host. Visits end with the process.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass

COOKIE = "afterwit-page"
LIFE_S = 12 * 3600
"""Seconds that a visit lasts."""
MOST = 256
"""Visits at once; of more, the oldest ends."""
LOCAL_VISIT = "local"
"""What forms are bound to where nobody signs in."""


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
        while len(self._open) >= MOST:
            del self._open[next(iter(self._open))]
        self._open[_hash(cookie)] = _Visit(key_hash=key_hash, until=self._now() + LIFE_S)
        return cookie

    def key_hash(self, cookie: str | None) -> str | None:
        """The hash of the key that a visit began with; None if there is no such visit (any more)."""
        visit = None if cookie is None else self._open.get(_hash(cookie))
        return None if visit is None or visit.until < self._now() else visit.key_hash

    def end(self, cookie: str | None) -> None:
        """Sign out."""
        if cookie is not None:
            self._open.pop(_hash(cookie), None)

    def form_token(self, cookie: str | None) -> str:
        """What a form of this visit must carry. A page of another site cannot read it."""
        return hmac.new(self._secret, (cookie or LOCAL_VISIT).encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, token: str, cookie: str | None) -> bool:
        """Whether a form was made for this visit, by this process."""
        return hmac.compare_digest(token.encode(), self.form_token(cookie).encode())


def _hash(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()
