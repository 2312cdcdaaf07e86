"""The adapter that serves a request and learns from it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

SHARED = "shared"
"""The adapter of all who have no personal one. Whole weights are its versions too."""

Division = Literal["shared", "per_key", "per_session_group"]
"""Who has a personal adapter: no one; each API key; each group of sessions that a key names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterPolicy:
    """The adapter of each request."""

    division: Division = "shared"
    shared_keys: Collection[str] = ()
    """Keys without a personal adapter, whatever the division."""

    def of(self, key: str, group: str | None = None) -> str:
        """The adapter of a key's requests, or of those of one of its groups of sessions."""
        if self.division == "shared" or key in self.shared_keys:
            return SHARED
        if self.division == "per_session_group" and group is not None:
            return f"group:{key}/{group}"
        return f"key:{key}"
