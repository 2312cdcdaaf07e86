"""The dialects that the gateway serves. A route is made from each entry."""

from __future__ import annotations

from collections.abc import Sequence

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
"""Errors at paths that belong to no dialect leave in the first one."""


def dialect_of(path: str, dialects: Sequence[Dialect]) -> Dialect:
    return next((dialect for dialect in dialects if dialect.owns(path)), dialects[0])


def meant_by(path: str, served: Sequence[str]) -> str | None:
    """The route that a client means whose base URL has no `/v1`, has it twice, or has a slash too many."""
    wanted = _without_version(path)
    return next((route for route in served if wanted and _without_version(route) == wanted), None)


def _without_version(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", "v1")]
