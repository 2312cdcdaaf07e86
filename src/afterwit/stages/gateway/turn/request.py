"""One request before sampling: what was asked, by whom, and its prompt."""

from __future__ import annotations

from dataclasses import dataclass

from afterwit.core.binding import IncomingRequest
from afterwit.core.ids import choice_turn
from afterwit.stages.gateway.turn.prepare import Prompt
from afterwit.wire.request import ModelRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """Everything that is known before anything is sampled."""

    asked: ModelRequest
    prompt: Prompt
    scope: str
    """Key and client family."""
    adapter: str
    """What samples it."""
    teaches: bool
    incoming: IncomingRequest
    """The request as it is bound. Its turn is the first choice's, and the response id ends with it."""
    created: float
    """Seconds since the epoch."""

    @property
    def turns(self) -> tuple[str, ...]:
        """The turn of each choice."""
        first = self.incoming.turn
        return (first, *(choice_turn(first, index) for index in range(1, self.asked.choices)))
