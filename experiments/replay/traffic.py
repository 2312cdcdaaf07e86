"""A request of a client, what the model answers, and the truth about both."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from afterwit.turn import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request. Names are of the asks of one play."""

    name: str
    messages: tuple[Message, ...]
    reply: Message
    """The model's answer. The host gives its tool calls their ids."""
    tools: tuple[str, ...] = ()
    streamed: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    session: str = "main"
    """Its conversation in the play: a sub-agent has one of its own."""
    side: bool = False
    parent: str | None = None
    says: Mapping[str, tuple[Message, ...]] = field(default_factory=dict)
    """The next states of earlier asks that this one carries."""
    again: str | None = None
    """The earlier ask that this one takes the place of: asked again, edited, or left for another branch."""
    arrives: bool = True
    """False: the client leaves before the answer ends."""
    dialect: str = "chat"
    """chat, responses or messages."""
    body: Mapping[str, Any] | None = None
    """The body as it was recorded; None: it is made from the messages."""

    def __post_init__(self) -> None:
        if self.side and self.parent is not None:
            raise ValueError(f"{self.name}: the parent of a side turn is not judged")


Play = Generator[tuple[Ask, ...], tuple[Message, ...], None]
"""A client at work: it yields the requests that it sends at once, and is sent their answers."""
