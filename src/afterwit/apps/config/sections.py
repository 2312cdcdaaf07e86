"""Settings of the program itself: the address, the stop, how long turns are kept."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from afterwit.core.ranges import above, at_least, below, one_of_its_choices, within


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Where to listen, and how to stop."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    host: str = "127.0.0.1"
    """Address to listen on. Any but a loopback address needs at least one API key."""
    port: int = 8720
    """TCP port; 0 takes a free one and prints it."""
    drain_s: float = 30.0
    """Seconds that running requests may take to finish after SIGTERM."""
    learner_restart_s: float = 5.0
    """Seconds before a learner that died is started again; doubles up to 10 s, or five minutes if it
    cannot start."""

    def __post_init__(self) -> None:
        within(self, 0, 65535, "port")
        at_least(self, 0, "drain_s", "learner_restart_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """How durable turns are, and how long they are kept."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    url: str | None = None
    """Where turns are stored; unset: in `store.db` of the home. `postgresql://user@host/database`: several
    machines over one store. Write it in config.toml or the environment, so that every command finds it."""
    synchronous: Literal["NORMAL", "FULL"] = "NORMAL"
    """Of SQLite. NORMAL survives a killed process; FULL survives a power loss, at the price of a disk flush a
    turn. PostgreSQL survives both, unless its own `synchronous_commit` says otherwise."""
    keep_days: float = 90.0
    """Days that ended turns are kept; those still waiting to be judged or trained are never removed."""
    keep_gb: float = 20.0
    """Size in GB above which the oldest ended turns are removed early."""
    next_state_hours: float = 24.0
    """Hours after which a turn that nothing answered ends; a late reply reopens it."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        above(self, 0, "keep_days", "keep_gb", "next_state_hours")
        below(self, inf, "keep_days", "keep_gb", "next_state_hours")
