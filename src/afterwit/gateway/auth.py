"""API keys: their form, hash and scopes; and checks of a request's Host and Origin."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from urllib.parse import urlsplit

from afterwit.dialects.fields import shown
from afterwit.errors import RequestError, SettingError, StoreError
from afterwit.store import Key

KEY_PREFIX = "aw-"

MOST_NAME = 64
"""Characters of a key's name."""

GROUP_HEADER = "x-session-group"

_FAMILY = re.compile(r"(?:async(?=[a-z]))?(ai(?=-sdk/|/)|codex(?=[_-])|[a-z0-9._-]+)")
"""One program may send several of a family: `AsyncOpenAI/Python` and `OpenAI/Python`; `ai/6` and
`ai-sdk/openai/3`; `codex_exec` and `codex_cli_rs`, which resume each other's sessions."""
_GROUP = re.compile(r"[A-Za-z0-9._-]{1,64}")

PATIENCE_S, FIRST_S = 0.5, 12.0
"""Seconds that requests wait for keys to be read again, and for the first time."""

log = logging.getLogger("afterwit.gateway")

LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain"})


class Permission(StrEnum):
    """A scope of a key. `admin` permits everything."""

    CHAT = "chat"
    TEACH = "teach"
    """Its turns and replies may train, and it may give feedback in words."""
    REWARD = "reward"
    """Its feedback may set rewards, hints and corrections. An agent's own key lacks it: its shell could
    praise its own turns."""
    READ = "read"
    ADMIN = "admin"


def hash_key(key: str) -> str:
    """The hash that the store keeps. Keys are long and random, so a fast hash is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


def new_key() -> str:
    """A new random key; it is shown once and never stored."""
    return KEY_PREFIX + secrets.token_hex(20)


def check_name(name: str) -> None:
    """Raise SettingError for a text that cannot name a key: names appear in lists and in adapters' names."""
    if not (name.strip() == name and name.isprintable() and 0 < len(name) <= MOST_NAME):
        raise SettingError(
            f"a key cannot be named {shown(name)}: its name is 1 to {MOST_NAME} printable characters, with no"
            " blank at either end"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The sender of a request."""

    name: str
    """The key's name; sessions are partitioned by it."""
    scopes: frozenset[str]

    def may(self, permission: Permission) -> bool:
        return permission in self.scopes or Permission.ADMIN in self.scopes

    def require(self, permission: Permission) -> None:
        """Raise 403 unless the key permits it."""
        if not self.may(permission):
            message = f"The key {self.name!r} lacks the scope {permission.value!r}."
            if self is LOCAL:
                message = (
                    "Send as API key the token in the page's address, which Afterwit prints when it starts, "
                    f"or a key with the scope {permission.value!r}."
                )
            raise RequestError(403, "insufficient_scope", message)


LOCAL = Caller(name="local", scopes=frozenset({Permission.CHAT, Permission.TEACH}))
"""A caller from this machine while there are no keys: perhaps an agent's tool."""
OWNER = Caller(name="local", scopes=frozenset(Permission))
"""A caller from this machine with the home's token, while there are no keys."""


def scope_of(caller: Caller, user_agent: str | None, group: str | None = None) -> str:
    """A turn's scope: key and client family (`OpenAI/Python 3.1` -> `key/openai`), and the group of sessions
    if it has its own adapter (`key/openai#group`)."""
    family = _FAMILY.match((user_agent or "").lower())
    own = "" if group is None else f"#{group}"
    return f"{caller.name}/{family[1] if family else 'unknown'}{own}"


def group_of(headers: Mapping[str, str]) -> str | None:
    """The group of sessions that a request names, or None. Raises 400 for a bad name."""
    group = headers.get(GROUP_HEADER, "").strip()
    if group and _GROUP.fullmatch(group) is None:
        message = (
            f"{GROUP_HEADER} is {shown(group)}: a group's name is 1 to 64 letters, digits, dots, hyphens or"
            " underscores."
        )
        raise RequestError(400, "invalid_value", message)
    return group or None


def owner_of(scope: str) -> str:
    """The name of the key in a turn's scope."""
    return scope.rpartition("/")[0]


def sent_key(authorization: str | None, x_api_key: str | None) -> str | None:
    """The key a request carries: `Authorization: Bearer KEY`, else `x-api-key: KEY`."""
    scheme, _, key = (authorization or "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return x_api_key or None


class KeyCache:
    """Reads all keys at most once in `refresh_s` seconds: a revoked key is refused after that time."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Iterable[Key]]],
        *,
        refresh_s: float,
        now: Callable[[], float],
        token: str,
    ) -> None:
        """`token` is the owner's key while there are no others."""
        self._read, self._refresh_s, self._now = read, refresh_s, now
        self._token_hash = hash_key(token)
        self._read_at: float | None = None
        self._callers: dict[str, Caller] = {}
        self._reading: asyncio.Future[None] | None = None
        self._patient_until = 0.0
        """Requests wait for this reading until then, in the loop's time."""

    async def refresh(self) -> None:
        """Read the keys again if they are too old. The old ones stay if the store fails or takes longer than
        `PATIENCE_S`: a locked store must not stop requests that need no store.

        Raises 503 if the keys were never read: no one may call before that.
        """
        if self._read_at is not None and 0 <= self._now() - self._read_at < self._refresh_s:
            return
        now = asyncio.get_running_loop().time()
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._renew())
            self._patient_until = now + PATIENCE_S
        reading, left_s = self._reading, max(self._patient_until - now, 0.0)
        await asyncio.wait({reading}, timeout=FIRST_S if self._read_at is None else left_s)
        if self._read_at is None:
            raise RequestError(503, "store_unavailable", "The store does not answer: no key is known yet.")

    async def _renew(self) -> None:
        try:
            keys = list(await self._read())
        except StoreError as error:
            if self._read_at is None:
                log.error("the keys cannot be read: %s", error)
            return
        valid = (key for key in keys if key.revoked is None)
        self._callers = {key.hash: Caller(name=key.name, scopes=frozenset(key.scopes)) for key in valid}
        self._read_at = self._now()

    @property
    def keyed(self) -> bool:
        """Whether there is a key that is not revoked. Without one, only this machine may call."""
        return bool(self._callers)

    @property
    def several(self) -> bool:
        """Whether there are several keys that are not revoked."""
        return len(self._callers) > 1

    def caller(self, key: str | None, client: str | None) -> Caller | None:
        """The caller; None if a key is needed and none was sent.

        Raises 401 for an unknown key, and 403 for another machine while there are no keys.
        """
        known = None if key is None else self.holder(hash_key(key))
        if not self.keyed:
            if client and not is_loopback(client):
                raise RequestError(403, "loopback_only", "Without API keys only this machine may call.")
            return known or LOCAL
        if key is not None and known is None:
            raise RequestError(401, "invalid_api_key", "The API key is not known here, or it was revoked.")
        return known

    def holder(self, key_hash: str) -> Caller | None:
        """The owner of the key with this hash; None if it is unknown or revoked."""
        if not self.keyed:
            return OWNER if hmac.compare_digest(key_hash, self._token_hash) else None
        return self._callers.get(key_hash)


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether a host name or address, without its port, is loopback. All names below `localhost` are (RFC
    6761): Tauri's apps send `http://tauri.localhost`."""
    name = host.lower().rstrip(".")
    if name in LOCAL_NAMES or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


@lru_cache(maxsize=256)
def host_name(authority: str) -> str:
    """The name in a Host header: `[::1]:80` -> `::1`; empty if it cannot be read."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


def check_host(authority: str | None, allowed: Collection[str], *, keyed: bool) -> None:
    """Raise 403 for a Host that is neither loopback nor `allowed`, unless there are keys and no `allowed`."""
    name = host_name(authority or "")
    if is_loopback(name) or name in allowed or (keyed and not allowed):
        return
    message = f"This server does not answer to the host {name!r}, unless gateway.allowed_hosts names it."
    raise RequestError(403, "foreign_host", message)


def check_origin(origin: str | None, authority: str | None, allowed: Collection[str]) -> None:
    """Raise 403 for a page of another site; no Origin, the same host, loopback and `allowed` pass."""
    if origin is None or origin in allowed:
        return
    name = host_name(origin.partition("://")[2])
    if name and (is_loopback(name) or name == host_name(authority or "")):
        return
    message = f"Pages of {origin!r} may not call this server, unless gateway.allowed_origins names them."
    raise RequestError(403, "foreign_origin", message)
