"""The client's own session ids and statements about a turn, if it sends any."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from afterwit.text import without_halves
from afterwit.turn import Kind

_SESSION_HEADERS = (
    ("x-session-id",),
    ("session-id", "thread-id"),
    ("session_id",),
    ("x-session-affinity",),
    ("x-thread-id",),
)
"""In order of trust; the headers of one entry are read together."""

_HEADERS = frozenset(
    {
        *(name for names in _SESSION_HEADERS for name in names),
        "x-parent-session-id",
        "x-session-done",
        "x-turn-type",
        "x-codex-turn-metadata",
        "x-interaction-type",
    }
)
"""All headers that are read."""

_FIELDS = frozenset({"metadata", "prompt_cache_key", "session_id"})
"""All fields of a body that are read."""

_SIDE_INTERACTIONS = frozenset({"conversation-compaction", "conversation-background"})
"""Interaction types of the side turns of GitHub's Copilot."""

_COUNTED = re.compile(r":\d+\Z")
_LONGEST = 256
_LONGEST_PACKED = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSession:
    """The client's own statements about its session.

    Requests with different ids never match. An equal id does not prove a parent: titles, compactions and
    sub-agents may share it.
    """

    session: str | None = None
    """The client's id of the session; a sub-agent without one gets it from its parent's."""
    turn_type: Kind | None = None
    """The client's own classification of the turn."""
    done: bool = False
    """Whether the client declares this the last request of the session."""


UNKNOWN = ClientSession()
"""Of a client that sends no ids."""


def client_session_of(headers: Mapping[str, str], body: Any) -> ClientSession:
    """Read the ids of a request. `headers` have lower-case names. Malformed ids are ignored."""
    fields = body if isinstance(body, Mapping) else {}
    if _HEADERS.isdisjoint(headers) and _FIELDS.isdisjoint(fields):
        return UNKNOWN
    parent = _id(headers.get("x-parent-session-id"))
    session = _from_headers(headers) or _from_body(fields)
    if session is None and parent is not None:
        session = f"under {parent}"
    return ClientSession(
        session=session,
        turn_type=_turn_type(headers),
        done=headers.get("x-session-done", "").strip().lower() in ("1", "true", "yes"),
    )


def _from_headers(headers: Mapping[str, str]) -> str | None:
    for names in _SESSION_HEADERS:
        values = [value for value in (_id(headers.get(name)) for name in names) if value]
        if values:
            return " ".join(values)
    return None


def _from_body(body: Mapping[str, Any]) -> str | None:
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    found = (
        _id(value) for value in (_packed(user), user, body.get("prompt_cache_key"), body.get("session_id"))
    )
    return next((value for value in found if value), None)


def _packed(user: Any) -> Any:
    """The session id within a user id: Claude Code packs several ids as a JSON object."""
    if not isinstance(user, str) or len(user) > _LONGEST_PACKED or not user.startswith("{"):
        return None
    try:
        ids = json.loads(without_halves(user))
    except (ValueError, RecursionError):
        return None
    return ids.get("session_id")


def _id(value: Any) -> str | None:
    """An id without the `:N` that counts requests."""
    if not isinstance(value, str):
        return None
    return _COUNTED.sub("", value.strip())[:_LONGEST] or None


def _turn_type(headers: Mapping[str, str]) -> Kind | None:
    said = headers.get("x-turn-type", "").strip().lower()
    if said in (Kind.MAIN, Kind.SIDE):
        return Kind(said)
    if headers.get("x-interaction-type", "").strip().lower() in _SIDE_INTERACTIONS:
        return Kind.SIDE
    metadata = headers.get("x-codex-turn-metadata")
    if metadata is None:
        return None
    try:
        codex = json.loads(metadata)
    except (ValueError, RecursionError):
        return None
    kind = codex.get("request_kind") if isinstance(codex, dict) else None
    return Kind.SIDE if isinstance(kind, str) and kind != "turn" else None
