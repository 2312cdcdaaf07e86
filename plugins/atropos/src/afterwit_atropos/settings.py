"""The address of the Atropos server, and the pace of requests to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from afterwit.ranges import above, at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class AtroposSettings:
    """Training on batches of an Atropos server (`afterwit train --from atropos`). A batch is `learner.batch`
    sequences."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    url: str = "http://127.0.0.1:8000"
    """URL of `run-api`."""
    poll_s: float = 1.0
    """Seconds between requests while the server has no batch; doubles up to `longest_poll_s`."""
    longest_poll_s: float = 15.0
    """Most seconds between two questions: environments stop sending while a batch waits to be fetched."""
    timeout_s: float = 120.0
    """Seconds that one answer may take: a batch with 50 ids a row is tens of megabytes."""
    temperature: float = 1.0
    """Of the log-probs in groups that do not say. Groups of Afterwit's own environment do."""
    max_failures: int = 3
    """Updates that may fail one after the other, each losing its batch, before the command stops."""

    def __post_init__(self) -> None:
        above(self, 0, "poll_s", "longest_poll_s", "timeout_s", "temperature")
        at_least(self, 1, "max_failures")
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url is {self.url!r}, but must begin with http:// or https://")
