"""Says in the log, once, that requests hold what a text model cannot read."""

from __future__ import annotations

import logging

from afterwit.core.message import Conversation
from afterwit.wire.omitted import omitted_kind

log = logging.getLogger("afterwit.gateway")


def note_omissions(conversation: Conversation, noted: set[str]) -> None:
    """Log the first kind of part that was left out; `noted` is empty until then."""
    if noted:
        return
    kinds = (omitted_kind(message.content) for message in conversation.messages if message.content)
    kind = next((kind for kind in kinds if kind is not None), None)
    if kind is not None:
        noted.add(kind)
        log.warning("a request holds an %s: the model reads text, so it is told that it was left out", kind)
