"""The dialects that the gateway serves. A route is made from each entry."""

from __future__ import annotations

from collections.abc import Sequence

from afterwit.wire.anthropic_messages import ANTHROPIC_MESSAGES
from afterwit.wire.dialect import Dialect
from afterwit.wire.openai_chat import OPENAI_CHAT
from afterwit.wire.openai_responses import OPENAI_RESPONSES

DIALECTS: tuple[Dialect, ...] = (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC_MESSAGES)
"""Errors at paths that belong to no dialect leave in the first one."""


def dialect_of(path: str, dialects: Sequence[Dialect]) -> Dialect:
    """The dialect that a request at `path` speaks."""
    return next((dialect for dialect in dialects if dialect.owns(path)), dialects[0])
