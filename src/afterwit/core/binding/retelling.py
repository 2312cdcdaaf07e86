"""Whether a request carries a known conversation inside one message: a side turn that is to work on it.

Clients compact a conversation by sending it, written out as text, under other instructions. Their wordings
change; that a new conversation holds most of an old one in one message does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from afterwit.core.binding.request import IncomingRequest

SHORTEST = 16
"""Characters of a text that counts: shorter ones are in many messages."""
LONGEST = 200
"""Characters that are compared of a text: clients cut long tool results."""
FEWEST = 2
"""Texts that a retelling holds at least."""
MOST = 0.5
"""Share of a conversation's texts that a retelling holds at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """A conversation of the same scope, as of its newest turn."""

    session: str
    texts: tuple[str, ...]
    """Its last messages as they are compared (`segments.plain_text`), the system's left out."""


def retold(incoming: IncomingRequest, recent: Sequence[Recent]) -> str | None:
    """The session that one message of the request retells, None if none does."""
    carriers = carrying(incoming)
    found = (one.session for one in recent if any(_retells(text, one) for text in carriers))
    return next(found, None)


def carrying(incoming: IncomingRequest) -> list[str]:
    """Texts of the request that are long enough to hold a conversation."""
    said = zip(incoming.messages, incoming.texts, strict=True)
    return [text for message, text in said if message.role == "user" and len(text) > FEWEST * SHORTEST]


def _retells(text: str, conversation: Recent) -> bool:
    pieces = {piece[:LONGEST] for piece in conversation.texts if len(piece) >= SHORTEST}
    held = sum(piece in text for piece in pieces if len(piece) < len(text))
    return held >= max(FEWEST, MOST * len(pieces))
