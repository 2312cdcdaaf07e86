"""One server of a fleet, and which of several takes a request. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from afterwit.core.adapters import SHARED
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
    trouble: dict[str, str] = field(default_factory=dict)
    """By adapter: why it could not take the weights that the others have."""
    not_before: dict[str, float] = field(default_factory=dict)
    """By adapter: when to try it again with them, by the event loop's clock."""

    @contextmanager
    def busy(self) -> Iterator[None]:
        """A request is under way there for as long as the context lasts."""
        self.begun += 1
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    def version(self, adapter: str) -> int:
        """What it has of an adapter; 0: the base."""
        return self.engine.live(adapter) or 0

    def out(self, oldest: int, adapter: str = SHARED) -> str | None:
        """Why it serves nobody of an adapter now, if versions before `oldest` are served no more; None: it
        serves."""
        if self.engine.fault is not None:
            return self.engine.fault
        if (has := self.version(adapter)) < oldest:
            return self.trouble.get(adapter) or f"it has version {has} and takes version {oldest}"
        return None


def chosen(
    members: Sequence[Member], conversation: Conversation, *, oldest: int, adapter: str = SHARED
) -> Member | None:
    """Who takes the next request of a conversation; None if nobody can.

    The server that answered it last, unless that one is busier by MOST_AHEAD requests; else the idlest, and
    of equally idle ones the one that got the fewest. None whose version of the adapter is older than
    `oldest`.
    """
    able = [each for each in members if each.out(oldest, adapter) is None]
    if not able:
        return None
    idlest = min(able, key=lambda each: (each.under_way, each.begun))
    home = None if conversation.home is None else members[conversation.home]
    if home in able and home.under_way - idlest.under_way < MOST_AHEAD:
        return home
    return idlest
