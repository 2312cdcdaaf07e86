"""When new weights go into the engine, and which adapters stay there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from afterwit.ranges import above, at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """When new weights go into the engine."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    poll_s: float = 1.0
    """Seconds between two looks at the versions folder."""
    adapters: int = 16
    """Adapters of somebody's own (`learner.adapters`) that the engine keeps in memory; of more, those used
    last. Another one is loaded and probed when a request asks for it."""
    idle_s: float = 900.0
    """Seconds without a request after which such an adapter is taken out of memory."""

    def __post_init__(self) -> None:
        above(self, 0, "poll_s", "idle_s")
        at_least(self, 1, "adapters")
