"""Side turns: titles, summaries, compactions, memory flushes, background reviews, heartbeats.

They come over the same URL, with the same key and model, some with the main line's own prompt before them.
The first sign decides.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any

from afterwit.core.binding.segments import collapse, plain_text
from afterwit.core.message import Conversation, Message
from afterwit.core.turn import Kind

UNLIKE = 0.5
"""Share of common tools under which two tool sets are not one agent's."""
TINY = 2
"""Messages beside the system's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a request is made, apart from what it says."""

    tools: frozenset[str]
    streamed: bool
    tiny: bool = False

    def __str__(self) -> str:
        """One line for the store; `Shape.read` reads it."""
        return json.dumps({"streamed": self.streamed, "tools": sorted(self.tools)}, separators=(",", ":"))

    @classmethod
    def read(cls, line: str) -> Shape:
        data = json.loads(line)
        return cls(tools=frozenset(data["tools"]), streamed=data["streamed"])


def shape_of(conversation: Conversation, *, streamed: bool) -> Shape:
    """The shape of a request."""
    said = [message for message in conversation.messages if message.role not in ("system", "developer")]
    names = (tool["function"]["name"] for tool in conversation.tools)
    return Shape(tools=frozenset(names), streamed=streamed, tiny=len(said) <= TINY)


def differs(shape: Shape, usual: Shape) -> bool:
    """Whether a request is not made as its session's usually are."""
    if usual.tools and len(shape.tools & usual.tools) < UNLIKE * len(shape.tools | usual.tools):
        return True
    return usual.streamed and not shape.streamed and (shape.tiny or shape.tools != usual.tools)


class Place(StrEnum):
    """Where a pattern looks."""

    SYSTEM = "system"
    """At the beginning of the system text."""
    REQUEST = "request"
    """At the beginning of a user message that no answer follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Words with which a known client opens a side turn."""

    client: str
    place: Place
    starts: str


def read_patterns(data: Mapping[str, Any]) -> tuple[Pattern, ...]:
    """The patterns of a data file of version 1."""
    if data["version"] != 1:
        raise ValueError(f"side patterns of version {data['version']}, not 1")
    return tuple(
        Pattern(client=entry["client"], place=Place(entry["place"]), starts=collapse(entry["starts"]))
        for entry in data["patterns"]
    )


@cache
def known_patterns() -> tuple[Pattern, ...]:
    """The patterns that ship with the package."""
    file = resources.files("afterwit.core.binding") / "data" / "side_patterns.json"
    return read_patterns(json.loads(file.read_text(encoding="utf-8")))


def matches(messages: Sequence[Message], patterns: Sequence[Pattern]) -> Pattern | None:
    """The first pattern that a request opens with."""
    texts = {
        Place.SYSTEM: [collapse(message.content or "") for message in messages if message.role in _SYSTEM],
        Place.REQUEST: [plain_text(message) for message in open_messages(messages) if message.role == "user"],
    }
    found = (p for p in patterns if any(text.startswith(p.starts) for text in texts[p.place]))
    return next(found, None)


_SYSTEM = ("system", "developer")


def open_messages(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages after the last of the assistant."""
    last = max((index for index, message in enumerate(messages) if message.role == "assistant"), default=-1)
    return messages[last + 1 :]


def classify(
    messages: Sequence[Message],
    *,
    said: Kind | None,
    shape: Shape,
    usual: Collection[Shape],
    parent: Kind | None,
    patterns: Sequence[Pattern],
) -> Kind:
    """MAIN or SIDE. `said` is the client's word, `usual` the known shapes of the session's earlier turns.

    Whoever has tools and goes on from nothing but tool results was handed the conversation: their tools are
    not the session's, and it is the main line all the same.
    """
    if said is not None:
        return said
    handed = bool(shape.tools) and {message.role for message in open_messages(messages)} == {"tool"}
    if usual and not handed and all(differs(shape, one) for one in usual):
        return Kind.SIDE
    if matches(messages, patterns) is not None or parent is Kind.SIDE:
        return Kind.SIDE
    return Kind.MAIN
