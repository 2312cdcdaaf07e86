"""Whether a request carries a known conversation inside one message, which makes it a side turn.

To compact a conversation, clients send it as text in one message, under other instructions. The wording of
these instructions changes, the conversation inside does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from afterwit.core.binding.request import IncomingRequest

SHORTEST = 16
"""Characters. Shorter texts are in many messages and are not compared."""
LONGEST = 200
"""Characters. Only the beginning of a text is compared, because clients cut long tool results."""
FEWEST = 2
"""Least number of a conversation's texts in a retelling."""
MOST = 0.5
"""Least share of a conversation's texts in a retelling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """A conversation of the same scope, as of its newest turn."""

    session: str
    texts: tuple[str, ...]
    """Its last messages as they are compared (`segments.plain_text`), the system's left out."""


def retold(incoming: IncomingRequest, recent: Sequence[Recent]) -> str | None:
    """The session that a message of the request retells; None if there is none."""
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
