"""The traits that distinguish one kind of client from another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from experiments.replay.clients.echo import Echo, plainly


class Title(StrEnum):
    """The time at which a client requests a title."""

    BEFORE = "before"
    BESIDE = "beside"
    """At the same time as the first answer."""
    AFTER = "after"


class Kept(StrEnum):
    """The messages that a compaction keeps in addition to its summary."""

    NOTHING = "nothing"
    SUFFIX = "suffix"
    USERS = "users"
    ENDS = "ends"
    """The first messages and the last ones."""
    INSTRUCTED = "instructed"
    """As SUFFIX, with the summary in the system text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wordings:
    """The words of side requests: {first} is the first message, {all} the conversation as text."""

    title_system: str | None = None
    title: str = "{first}"
    summary_system: str | None = None
    summary: str = ""
    handoff: str = "{summary}"
    review: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """One kind of client. Shares are of the occasions on which something may happen."""

    name: str
    agent: str
    """Its User-Agent."""
    words: Wordings
    system: str = "You are a coding agent."
    tools: tuple[str, ...] = ("read", "edit", "run", "search", "todo")
    streamed: bool = True
    dialect: str = "chat"
    echo: Echo = plainly
    session_header: str | None = None
    calls_as_words: bool = False
    """Calls are written in the text, and the client sends no tools."""
    results_as_words: bool = False
    """The results of tools come as a user's words."""
    stamped: bool = False
    """People's words begin with the time."""
    context: str | None = None
    """A user message that ends every request and is gone in the next."""
    opening: str | None = None
    """A user message of the client before the first of the person."""
    title: Title | None = None
    title_behind: bool = False
    """The request for the title follows the conversation."""
    kept: Kept | None = None
    """How it compacts; None: never."""
    summary_elsewhere: bool = False
    """Another model writes the summary."""
    summary_behind: bool = False
    """The request for the summary follows the conversation, which is not put into one message."""
    summary_tools: bool = True
    """A request for a summary that follows the conversation keeps the tools."""
    review_tools: bool = True
    compacts: float = 0.25
    reviews: float = 0.0
    heartbeats: float = 0.0
    subagents: float = 0.0
    retries: float = 0.05
    regenerates: float = 0.05
    edits: float = 0.05
    complains: float = 0.0
    """It deletes a reply without a call, and complains."""
    interrupts: float = 0.05
    switches: float = 0.0
    """It goes on in another mode: with a tool less, and with other instructions."""
    headers: Mapping[str, str] = field(default_factory=dict)
