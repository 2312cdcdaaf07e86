"""Plays with session ids of the client, or without any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from experiments.replay.traffic import Ask, Play


class Ids(StrEnum):
    OWN = "own"
    """As the client does."""
    WITH = "with"
    """Every request names its conversation; a sub-agent's is one of its own."""
    WITHOUT = "without"


HEADERS = (
    *("x-session-id", "session-id", "thread-id", "session_id", "x-session-affinity", "x-parent-session-id"),
    *("x-turn-type", "x-session-done", "x-codex-turn-metadata"),
)
FIELDS = ("metadata", "prompt_cache_key", "session_id", "user")


def identified(play: Play, ids: Ids, key: str) -> Play:
    """The same play; `key` names it among the plays."""
    try:
        asks = next(play)
        while True:
            asks = play.send((yield tuple(_identified(ask, ids, key) for ask in asks)))
    except StopIteration:
        return


def _identified(ask: Ask, ids: Ids, key: str) -> Ask:
    if ids is Ids.OWN:
        return ask
    headers = {name: value for name, value in ask.headers.items() if name not in HEADERS}
    if ids is Ids.WITH:
        headers["x-session-id"] = f"{key}/{ask.session}"
    return replace(ask, headers=headers, body=_without_fields(ask.body))


def _without_fields(body: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if body is None else {name: value for name, value in body.items() if name not in FIELDS}
