"""The dialects that the gateway serves. A route is made from each entry."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from afterwit import plugins
from afterwit.dialects.chat import OPENAI_CHAT
from afterwit.dialects.dialect import Dialect
from afterwit.dialects.messages import ANTHROPIC_MESSAGES
from afterwit.dialects.responses import OPENAI_RESPONSES

DIALECTS: tuple[Dialect, ...] = (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC_MESSAGES)
"""Errors at paths of no dialect, for clients of none, leave in the first one."""


def _has_own_path(name: str, dialect: Dialect) -> None:
    if any(each.owns(dialect.path) for each in DIALECTS):
        raise ValueError(f"Afterwit has the path {dialect.path}")


ADDED = plugins.Table(plugins.DIALECTS, Dialect, check=_has_own_path)


def served() -> tuple[Dialect, ...]:
    """Every dialect. SettingError if one of a package cannot be used: its clients would find no path."""
    return (*DIALECTS, *(ADDED.loaded(name) for name in ADDED))


def dialect_of(path: str, dialects: Sequence[Dialect], headers: Collection[str] = ()) -> Dialect:
    """The dialect of a path; at a path of none, that of a client with these headers."""
    owners = [dialect for dialect in dialects if dialect.owns(path)]
    return [*owners, *(dialect for dialect in dialects if dialect.header in headers), *dialects][0]


def meant_by(path: str, served: Sequence[str]) -> str | None:
    """The route that a client means whose base URL has no `/v1`, has it twice, has a slash too many, or has
    another server's prefix."""
    wanted = _without_version(path)
    parts = {route: _without_version(route) for route in served}
    meant = [route for route, own in parts.items() if own and wanted[-len(own) :] == own]
    return max(meant, key=lambda route: len(parts[route]), default=None)


def _without_version(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", "v1")]
