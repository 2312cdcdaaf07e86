"""Side turns: titles, summaries, compactions, memory flushes, background reviews, heartbeats.

They use the same URL, key and model, and some begin with the main line's own prompt. The first sign decides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property, lru_cache
from importlib import resources
from sys import getsizeof
from typing import Any

from afterwit.binding.segments import collapse
from afterwit.byte_cache import Kept
from afterwit.message import SYSTEM, Conversation, Message
from afterwit.turn import Kind

UNLIKE = 0.5
"""If two tool sets share less than this, they belong to two agents."""

DOUBTFUL = 2 / 3
"""The same, if tools are missing and the system text differs as well."""

MOST_SYSTEM_BYTES = 8 * 2**20
"""Bytes of system texts that are known when they come again."""

TINY = 2
"""Most messages, without the system's, of a tiny request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a request is made: its tools, its stream, its system text."""

    tools: frozenset[str]
    streamed: bool
    system: str = ""
    """Hash of the system text."""
    tiny: bool = False
    """Whether it has at most `TINY` messages. Not stored."""

    @property
    def instructed(self) -> bool:
        """Whether it has a system text."""
        return self.system not in ("", _hash(""))

    def __str__(self) -> str:
        """One line for the store; `Shape.read` reads it."""
        return _line(self)

    @classmethod
    def read(cls, line: str) -> Shape:
        data = json.loads(line)
        return cls(tools=frozenset(data["tools"]), streamed=data["streamed"], system=data["system"])


@lru_cache(maxsize=256)
def _line(shape: Shape) -> str:
    """Written once: the requests of a session are nearly all made alike."""
    data = {"streamed": shape.streamed, "system": shape.system, "tools": sorted(shape.tools)}
    return json.dumps(data, separators=(",", ":"))


def shape_of(conversation: Conversation, *, streamed: bool) -> Shape:
    """The shape of a request."""
    system = [message.content or "" for message in conversation.messages if message.role in SYSTEM]
    names = (tool["function"]["name"] for tool in conversation.tools)
    return Shape(
        tools=frozenset(names),
        streamed=streamed,
        system=_digest(" ".join(system)),
        tiny=len(conversation.messages) - len(system) <= TINY,
    )


def _hash(text: str) -> str:
    return hashlib.blake2b(collapse(text).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


_digest = Kept(_hash, most_bytes=MOST_SYSTEM_BYTES, size=lambda text, digest: getsizeof(text))
"""Of a system text: every request of a session brings the same again."""


def alike(shape: Shape, other: Shape) -> bool:
    """Whether two requests have the same tools and the same system text."""
    return (shape.tools, shape.system) == (other.tools, other.system)


def differs(shape: Shape, usual: Shape) -> bool:
    """Whether a request is made in another way than is usual in its session.

    A tool set that is only somewhat unlike needs a second sign: people switch tools on and off.
    """
    common, all_tools = len(shape.tools & usual.tools), len(shape.tools | usual.tools)
    if usual.tools and common < UNLIKE * all_tools:
        return True
    if common < DOUBTFUL * all_tools and usual.tools - shape.tools and shape.system != usual.system:
        return True
    return usual.streamed and not shape.streamed and (shape.tiny or shape.tools != usual.tools)


class Place(StrEnum):
    """The messages that a pattern is compared with."""

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


class Patterns(tuple[Pattern, ...]):
    """Patterns, with what each request asks of all of them."""

    @cached_property
    def starts(self) -> tuple[str, ...]:
        return tuple(pattern.starts for pattern in self)

    @cached_property
    def words(self) -> int:
        """Of the longest."""
        return max((len(starts.split()) for starts in self.starts), default=0)


def read_patterns(data: Mapping[str, Any]) -> Patterns:
    """The patterns of a data file of version 1."""
    if data["version"] != 1:
        raise ValueError(f"side patterns of version {data['version']}, not 1")
    return Patterns(
        Pattern(client=entry["client"], place=Place(entry["place"]), starts=collapse(entry["starts"]))
        for entry in data["patterns"]
    )


@cache
def known_patterns() -> Patterns:
    """The patterns that ship with the package."""
    file = resources.files("afterwit.binding") / "data" / "side_patterns.json"
    return read_patterns(json.loads(file.read_text(encoding="utf-8")))


def matches(messages: Sequence[Message], texts: Sequence[str], patterns: Patterns) -> Pattern | None:
    """The first pattern that a request opens with. `texts` are the `plain_text` of its messages."""
    opened = open_messages(messages)
    said = zip(opened, texts[len(messages) - len(opened) :], strict=True)
    places = {
        Place.SYSTEM: [
            _first(patterns.words, message.content or "") for message in messages if message.role in SYSTEM
        ],
        Place.REQUEST: [text for message, text in said if message.role == "user"],
    }
    if not any(text.startswith(patterns.starts) for texts in places.values() for text in texts):
        return None
    found = (p for p in patterns if any(text.startswith(p.starts) for text in places[p.place]))
    return next(found, None)


def _first(words: int, text: str) -> str:
    """The first words of a text, one space between two: a system text is long, and no pattern is."""
    return " ".join(text.split(None, words)[:words])


def open_messages(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages after the last of the assistant."""
    last = max((index for index, message in enumerate(messages) if message.role == "assistant"), default=-1)
    return messages[last + 1 :]


def classify(
    messages: Sequence[Message],
    texts: Sequence[str],
    *,
    said: Kind | None,
    shape: Shape,
    usual: Collection[Shape],
    parent: Kind | None,
    retells: bool,
    resumes: bool = False,
    patterns: Patterns,
) -> Kind:
    """MAIN or SIDE. `texts` are the `plain_text` of the messages.

    `said` is what the client stated, `usual` the known shapes of the session's earlier turns. `retells` is
    true if a message of a new conversation holds a known one, or the request looks back on its own. `resumes`
    is true if a person goes on behind the side turn that is its `parent`: then that decides nothing.

    An agent whose new messages are only tool results was handed the conversation by another agent. Its tools
    differ, but it is on the main line.
    """
    if said is not None:
        return said
    handed = bool(shape.tools) and {message.role for message in open_messages(messages)} == {"tool"}
    if usual and not handed and all(differs(shape, one) for one in usual):
        return Kind.SIDE
    if retells or matches(messages, texts, patterns) is not None or (parent is Kind.SIDE and not resumes):
        return Kind.SIDE
    return Kind.MAIN
