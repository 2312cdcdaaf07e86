"""The protocol of a host, and its record of a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from afterwit.store import Record
from afterwit.turn import Message, call_id
from experiments.replay.traffic import Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """An ask that was served."""

    ask: Ask
    turn: str
    answer: Message
    """As the client received it."""


class Host(Protocol):
    async def serve(self, asks: Sequence[Ask]) -> list[Served]:
        """Serve requests that arrive together."""
        ...

    async def records(self) -> dict[str, Record]:
        """The record of every turn, by its id."""
        ...


def answered(reply: Message, turn: str) -> Message:
    """The reply with the ids of its calls."""
    made = [replace(call, id=call_id(turn, index)) for index, call in enumerate(reply.tool_calls)]
    return replace(reply, tool_calls=tuple(made))
