"""One choice of a response: the turn it becomes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from afterwit.core import ids
from afterwit.core.message import Message
from afterwit.core.turn import Sampling
from afterwit.stages.gateway.turn.reply import Reply


@dataclass(slots=True, kw_only=True)
class Choice:
    """A growing reply and its place in the response."""

    index: int
    turn: str
    sampling: Sampling
    reply: Reply
    saving: asyncio.Task[None] | None = None
    """Its record on its way to the store."""

    def call_id(self, index: int) -> str:
        """The id of its tool call at an index."""
        return ids.call_id(self.turn, index)

    def message(self) -> Message:
        """The response as it is recorded."""
        return self.reply.message(self.call_id)

    def sent(self) -> Message:
        """The response as the client receives it: without the words that it brought itself."""
        return self.reply.sent(self.call_id)
