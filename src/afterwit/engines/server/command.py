"""How a server is started: what a kind of server says, and who runs it does not need to know more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """A server's command line, and the environment variables that it gets beside the inherited ones."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
