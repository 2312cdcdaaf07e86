"""One server of a fleet, and which of several takes a request. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from afterwit.engines.fleet.conversations import Conversation
from afterwit.engines.server.engine import ServerEngine

MOST_AHEAD = 8
"""Requests that a conversation's server may have more under way than the idlest one. Beyond that reading the
prompt anew elsewhere costs less than waiting."""


@dataclass(slots=True, eq=False)
class Member:
    """A server of the fleet."""

    name: str
    """Its address, for people."""
    engine: ServerEngine
    under_way: int = 0
    begun: int = 0
    """Requests that it got so far."""
    trouble: str | None = None
    """Why it could not take the weights that the others have."""
    not_before: float = 0.0
    """When to try it again with them, by the event loop's clock."""

    @contextmanager
    def busy(self) -> Iterator[None]:
        """A request is under way there for as long as the context lasts."""
        self.begun += 1
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    def out(self, oldest: int) -> str | None:
        """Why it serves nobody now, if versions before `oldest` are served no more; None: it serves."""
        if self.engine.fault is not None:
            return self.engine.fault
        if self.engine.version < oldest:
            return self.trouble or f"it has version {self.engine.version} and takes version {oldest}"
        return None


def chosen(members: Sequence[Member], conversation: Conversation, *, oldest: int) -> Member | None:
    """Who takes the next request of a conversation; None if nobody can.

    The server that answered it last, unless that one is busier by MOST_AHEAD requests; else the idlest, and
    of equally idle ones the one that got the fewest. None whose version is older than `oldest`.
    """
    able = [each for each in members if each.out(oldest) is None]
    if not able:
        return None
    idlest = min(able, key=lambda each: (each.under_way, each.begun))
    home = None if conversation.home is None else members[conversation.home]
    if home in able and home.under_way - idlest.under_way < MOST_AHEAD:
        return home
    return idlest
