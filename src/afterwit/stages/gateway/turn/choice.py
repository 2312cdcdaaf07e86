"""One choice of a response: the turn it becomes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from afterwit.core import ids
from afterwit.core.message import Message
from afterwit.core.turn import Sampling
from afterwit.stages.gateway.turn.reply import Reply
from afterwit.wire.openai_chat import response as chat_response


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
        """The response as the client receives it."""
        return self.reply.message(self.call_id)

    def whole(self, *, logprobs: bool) -> chat_response.Choice:
        """The choice as a body shows it."""
        return chat_response.Choice(
            index=self.index,
            message=self.message(),
            finish=self.reply.ending,
            logprobs=tuple(self.reply.logprobs()) if logprobs else None,
        )
