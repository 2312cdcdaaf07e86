"""API keys: their form, their hash, and what they permit."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from afterwit.core.errors import RequestError, SettingError
from afterwit.wire.fields import shown

KEY_PREFIX = "aw-"
MOST_NAME = 64
"""Characters of a key's name."""


class Permission(StrEnum):
    """What a key permits: one of its scopes. `admin` permits everything."""

    CHAT = "chat"
    TEACH = "teach"
    """Its turns and replies may train, and it may give feedback."""
    READ = "read"
    ADMIN = "admin"


def hash_key(key: str) -> str:
    """What the store keeps of a key. Keys are long and random, so a fast hash is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


def new_key() -> str:
    """A new random key; it is shown once and never stored."""
    return KEY_PREFIX + secrets.token_hex(20)


def check_name(name: str) -> None:
    """Raise SettingError for what cannot name a key: people read names in lists, and in adapters' names."""
    if not (name.strip() == name and name.isprintable() and 0 < len(name) <= MOST_NAME):
        raise SettingError(
            f"a key cannot be named {shown(name)}: its name is 1 to {MOST_NAME} printable characters, with no"
            " blank at either end"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sends a request."""

    name: str
    """The key's name; sessions are partitioned by it."""
    scopes: frozenset[str]

    def may(self, permission: Permission) -> bool:
        return permission in self.scopes or Permission.ADMIN in self.scopes

    def require(self, permission: Permission) -> None:
        """Raise 403 unless the key permits it."""
        if not self.may(permission):
            raise RequestError(
                403, "insufficient_scope", f"The key {self.name!r} lacks the scope {permission.value!r}."
            )


LOCAL = Caller(name="local", scopes=frozenset(Permission))
"""The caller from this machine while there are no keys."""

GROUP_HEADER = "x-session-group"
_FAMILY = re.compile(r"[a-z0-9._-]+")
_GROUP = re.compile(r"[A-Za-z0-9._-]{1,64}")


def scope_of(caller: Caller, user_agent: str | None, group: str | None = None) -> str:
    """A turn's scope: the key and the client's family (`OpenAI/Python 3.1` -> `key/openai`), behind which the
    group of sessions, if it has an adapter of its own (`key/openai#group`)."""
    family = _FAMILY.match((user_agent or "").lower())
    own = "" if group is None else f"#{group}"
    return f"{caller.name}/{family.group() if family else 'unknown'}{own}"


def group_of(headers: Mapping[str, str]) -> str | None:
    """The group of sessions that a request names; None if it names none. 400 if it cannot be one."""
    said = headers.get(GROUP_HEADER)
    if said is None or not said.strip():
        return None
    if _GROUP.fullmatch(said.strip()) is None:
        raise RequestError(
            400,
            "invalid_value",
            f"{GROUP_HEADER} is {shown(said)}: a group's name is 1 to 64 letters, digits, dots, hyphens or"
            " underscores.",
        )
    return said.strip()


def owner_of(scope: str) -> str:
    """The name of the key in a turn's scope."""
    return scope.rpartition("/")[0]


def sent_key(authorization: str | None, x_api_key: str | None) -> str | None:
    """The key a request carries: `Authorization: Bearer KEY`, else `x-api-key: KEY`."""
    scheme, _, key = (authorization or "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return x_api_key or None
