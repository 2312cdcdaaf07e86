"""Limits of connections: time, size and number, before a request is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """They apply before the key is checked, so they hold for anybody who connects."""

    header_bytes: int = 64 * 1024
    """Bytes of a request line with its headers; one more is a 431. Real clients send at most 4 kB."""
    header_timeout_s: float = 20.0
    """Seconds until the headers must be complete, from the connection or from their first byte."""
    idle_connections: int = 512
    """Connections without a request; one more closes the oldest. Less than half of 1,024 open files."""
    keep_alive_s: int = 75
    """Seconds that an idle connection stays open: longer than most pauses between an agent's requests."""
    unread_s: float = 120.0
    """Seconds that a client may leave what was sent to it unread, before it is cut off."""
    probe_s: float = 1.0
    """Seconds between the two probes that tell a client which half-closed from one that left."""


class Connection(Protocol):
    """What the registry needs of a connection."""

    def cut(self) -> None:
        """Close it now."""


class IdleConnections:
    """Connections without a request, oldest first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._oldest_first: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._oldest_first)

    def add(self, connection: Connection) -> None:
        """This connection waits for a request. If there are too many, the oldest is cut."""
        self._oldest_first[connection] = None
        if len(self._oldest_first) > self._limit:
            oldest = next(iter(self._oldest_first))
            self.discard(oldest)
            oldest.cut()

    def discard(self, connection: Connection) -> None:
        """This connection has a request, or is gone."""
        self._oldest_first.pop(connection, None)
