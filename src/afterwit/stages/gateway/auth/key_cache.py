"""Who sends a request: the store's keys, read again every few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from afterwit.core.errors import RequestError, StoreError
from afterwit.stages.gateway.auth.hosts import is_loopback
from afterwit.stages.gateway.auth.keys import LOCAL, Caller, hash_key
from afterwit.store import Key

PATIENCE_S = 0.5
"""Seconds that requests wait for keys to be read again."""


class KeyCache:
    """Reads all keys at most once in `refresh_s` seconds: a revoked key is refused after that time."""

    def __init__(
        self, read: Callable[[], Awaitable[Iterable[Key]]], *, refresh_s: float, now: Callable[[], float]
    ) -> None:
        self._read = read
        self._refresh_s = refresh_s
        self._now = now
        self._read_at: float | None = None
        self._callers: dict[str, Caller] = {}
        self._reading: asyncio.Future[None] | None = None
        self._patient_until = 0.0
        """Until when requests wait for this reading, in the loop's time."""

    async def refresh(self) -> None:
        """Read the keys again if they were read too long ago. If the store fails, the old ones stay.

        So they do while it takes longer than `PATIENCE_S`: a store that another process holds must not stop
        what needs no store. Raises StoreError if the keys were never read: nobody may call before that.
        """
        if self._fresh():
            return
        now = asyncio.get_running_loop().time()
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._renew())
            self._patient_until = now + PATIENCE_S
        reading, left_s = self._reading, max(self._patient_until - now, 0.0)
        await asyncio.wait({reading}, timeout=None if self._read_at is None else left_s)
        if self._read_at is None:
            reading.result()

    async def _renew(self) -> None:
        try:
            keys = list(await self._read())
        except StoreError:
            if self._read_at is None:
                raise
            return
        self._callers = {
            key.hash: Caller(name=key.name, scopes=frozenset(key.scopes))
            for key in keys
            if key.revoked is None
        }
        self._read_at = self._now()

    def _fresh(self) -> bool:
        return self._read_at is not None and 0 <= self._now() - self._read_at < self._refresh_s

    @property
    def keyed(self) -> bool:
        """Whether there is a key that is not revoked. Without one, only this machine may call."""
        return bool(self._callers)

    def caller(self, key: str | None, client: str | None) -> Caller | None:
        """Who this is; None if a key is needed and none was sent.

        Raises 401 for an unknown key, and 403 for another machine while there are no keys.
        """
        if not self.keyed:
            if client and not is_loopback(client):
                raise RequestError(403, "loopback_only", "Without API keys only this machine may call.")
            return LOCAL
        if key is None:
            return None
        caller = self.holder(hash_key(key))
        if caller is None:
            raise RequestError(401, "invalid_api_key", "The API key is not known here, or it was revoked.")
        return caller

    def holder(self, key_hash: str) -> Caller | None:
        """Whose key has this hash; None if it is not known, or was revoked."""
        return self._callers.get(key_hash)
