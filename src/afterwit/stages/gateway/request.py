"""One request on its way: what was asked, by whom, and the prompt it became."""

from __future__ import annotations

from dataclasses import dataclass

from afterwit.core.binding import Partition
from afterwit.stages.gateway.prepare import Prompt
from afterwit.wire.chat_request import ChatRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything that is known before anything is sampled."""

    asked: ChatRequest
    prompt: Prompt
    scope: str
    """Key and client family."""
    teaches: bool
    partition: Partition
    """What the client's own ids say of its sessions."""
    turn: str
    """The first choice's turn: the response is named after it."""
    created: float
    """Seconds since the epoch."""
