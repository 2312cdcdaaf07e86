"""One request on its way: what was asked, by whom, and the prompt it became."""

from __future__ import annotations

from dataclasses import dataclass

from afterwit.core.binding.bind import IncomingRequest
from afterwit.core.ids import choice_turn
from afterwit.stages.gateway.turn.prepare import Prompt
from afterwit.wire.openai_chat.request import ChatRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything that is known before anything is sampled."""

    asked: ChatRequest
    prompt: Prompt
    scope: str
    """Key and client family."""
    teaches: bool
    incoming: IncomingRequest
    """The request as it is bound. Its turn is the first choice's: the response is named after it."""
    created: float
    """Seconds since the epoch."""

    @property
    def turns(self) -> tuple[str, ...]:
        """The turn of each choice."""
        return tuple(choice_turn(self.incoming.turn, index) for index in range(self.asked.n))
