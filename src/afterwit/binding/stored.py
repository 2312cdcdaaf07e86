"""The stored facts that binding reads: turns, siblings, recent conversations, signatures of requests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from afterwit.turn import Kind

CALL = "call"
"""First part of a call's segment; the second is its id."""

LONG_REPLY = 80
"""A quoted side reply of at least this many characters is not a coincidence: titles are shorter."""

SHORTEST_TEXT = 16
"""Characters. Shorter texts are in many messages and are not compared."""

LONGEST_TEXT = 200
"""Characters. Only the beginning of a text is compared, because clients cut long tool results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The signature of a request: its tools, its stream, its system text."""

    tools: frozenset[str]
    streamed: bool
    system: str = ""
    """Hash of the system text; empty if there is none."""
    tiny: bool = False
    """Whether it has at most `request.TINY` messages. Not stored."""

    def __str__(self) -> str:
        """One line for the store; `Shape.read` reads it."""
        data = {"streamed": self.streamed, "system": self.system, "tools": sorted(self.tools)}
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def read(cls, line: str) -> Shape:
        data = json.loads(line)
        return cls(tools=frozenset(data["tools"]), streamed=data["streamed"], system=data["system"])

    def same_signature(self, other: Shape) -> bool:
        """Whether two requests have the same tools and the same system text."""
        return (self.tools, self.system) == (other.tools, other.system)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A stored turn of the same scope that a request may follow, repeat or reject."""

    turn: str
    session: str
    parent: str | None
    prompt_hash: bytes
    full_hash: bytes
    depth: int
    """Segments of the prompt."""
    full_depth: int
    """Segments of prompt and response."""
    delivered: bool
    kind: Kind
    created: float
    children: int
    """Turns whose parent it is, without side turns. Only whether there are any matters."""
    answered: bool = False
    """Messages that follow it are known; among siblings, feedback on it counts too."""
    reply: str | None = None
    """The text of its reply as it is compared; None if it was not looked up."""
    said: tuple[tuple[str, ...], ...] = ()
    """The segments of the reply, by their parts, if it was looked up."""
    shape: Shape | None = None
    """The signature of its request; None if it was not stored."""
    newest: bool = False
    """Whether it is the newest main-line turn under the session id that the client sends."""

    @property
    def is_empty(self) -> bool:
        """Whether the reply has neither visible text nor a call."""
        return self.full_depth == self.depth

    @property
    def calls(self) -> bool:
        """Whether the reply calls tools, if it was looked up."""
        return any(parts[0] == CALL for parts in self.said)

    @property
    def arrived(self) -> bool:
        """Whether the client has the answer: it was delivered, or the conversation continues from it."""
        return self.delivered or self.children > 0

    @property
    def age(self) -> tuple[float, str]:
        return self.created, self.turn


def latest(candidates: Iterable[Candidate]) -> Candidate | None:
    return max(candidates, key=lambda one: one.age, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """A conversation of the same scope, as of its newest turn."""

    session: str
    turn: str
    texts: tuple[str, ...]
    """Its last messages as they are compared (`request.plain_text`), without the system's."""
    asked: tuple[str, ...] = ()
    """The user messages, oldest first, each cut to `LONGEST_TEXT`, without empty ones."""
    shape: Shape | None = None
    begins: bool = False
    """Whether its newest turn follows no other."""
    client_session: bytes | None = None
    """Hash of the client's session id; None if it sent none."""
    pieces: frozenset[str] = field(init=False, repr=False, compare=False)
    """The beginnings of its texts, which a paraphrase contains."""

    def __post_init__(self) -> None:
        pieces = frozenset(text[:LONGEST_TEXT] for text in self.texts if len(text) >= SHORTEST_TEXT)
        object.__setattr__(self, "pieces", pieces)
