"""The dialects that the gateway serves. A route is made from each entry."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from afterwit import plugins
from afterwit.dialects.chat import OPENAI_CHAT
from afterwit.dialects.dialect import Dialect
from afterwit.dialects.messages import ANTHROPIC_MESSAGES
from afterwit.dialects.responses import OPENAI_RESPONSES

DIALECTS: tuple[Dialect, ...] = (
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    ANTHROPIC_MESSAGES,
    *map(plugins.loaded, plugins.installed(plugins.DIALECTS).values()),
)
"""Errors at paths of no dialect, for clients of none, leave in the first one."""


def dialect_of(path: str, dialects: Sequence[Dialect], headers: Collection[str] = ()) -> Dialect:
    """The dialect of a path; at a path of none, that of a client with these headers."""
    owners = [dialect for dialect in dialects if dialect.owns(path)]
    return [*owners, *(dialect for dialect in dialects if dialect.header in headers), *dialects][0]


def meant_by(path: str, served: Sequence[str]) -> str | None:
    """The route that a client means whose base URL has no `/v1`, has it twice, or has a slash too many."""
    wanted = _without_version(path)
    return next((route for route in served if wanted and _without_version(route) == wanted), None)


def _without_version(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", "v1")]
