"""The settings of promotion, each default declared here once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from afterwit.ranges import above, at_least, within


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionSettings:
    """When a version may serve, and when it is taken back; see [Safety](safety.md)."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    enabled: bool = True
    """false: every finite update is served; none is held or taken back."""
    may_lose: float = 0.10
    """Share of approved responses of each kind that a new version may answer otherwise."""
    hold_at: float = 20.0
    """Evidence (e-value) of a greater loss that holds an update; 20 holds at most 1 in 20 wrongly if
    responses are independent."""
    per_kind: int = 16
    """Approved responses in the test, for each kind: a tool with its flags, or text."""
    per_source: int = 6
    """The most of these from one source (a key) if others approved some, or an equal part if that is more."""
    share_of_update: float = 0.2
    """Tokens of the test as a share of the update's work, at least 4,096; kinds take turns."""
    may_end_badly: float = 0.15
    """Share of requests that may end badly: in a complaint without a hint, in repeated calls, cut off, or
    never."""
    alarm_at: float = 100.0
    """Evidence of a greater share that takes back all versions since the confirmed one. In simulations an
    alarm came after 46 requests if twice `may_end_badly` ended badly, after 13 if half did; a false one after
    1,300 if an eighth did."""
    confirm_after: int = 6
    """Requests in a row that must end well to confirm the version that served the first, with at most
    `may_end_badly` of the newest 24 ending badly. Complaints with a hint do not count."""
    no_end_s: float = 1800.0
    """Seconds without a tool's result before a request counts as never ended."""

    def __post_init__(self) -> None:
        within(self, 0, 1, "may_lose", "may_end_badly", "share_of_update")
        above(self, 0, "may_lose", "may_end_badly", "no_end_s")
        above(self, 1, "hold_at", "alarm_at")
        at_least(self, 1, "per_kind", "per_source", "confirm_after")
