"""The address of the Atropos server, and the pace of requests to it."""

from __future__ import annotations

from dataclasses import dataclass

from afterwit.api.settings import above, at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class AtroposSettings:
    """Training on an Atropos server's batches of `learner.batch` sequences (`afterwit train --from
    atropos`)."""

    url: str = "http://127.0.0.1:8000"
    """URL of `run-api`."""
    poll_s: float = 1.0
    """Seconds between requests until the server has a batch; doubles up to `longest_poll_s`."""
    longest_poll_s: float = 15.0
    """Longest such wait; environments stop sending while a batch waits."""
    timeout_s: float = 120.0
    """Seconds for one answer, which may have tens of megabytes."""
    temperature: float = 1.0
    """Temperature of log-probs in groups that name none; Afterwit's name theirs."""
    max_failures: int = 3
    """Failed updates in a row, each of which loses its batch, before the command stops."""

    def __post_init__(self) -> None:
        above(self, 0, "poll_s", "longest_poll_s", "timeout_s", "temperature")
        at_least(self, 1, "max_failures")
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url is {self.url!r}, but must begin with http:// or https://")
