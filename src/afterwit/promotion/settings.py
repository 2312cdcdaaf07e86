"""The settings of promotion, each default declared here once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from afterwit.ranges import above, at_least, within


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionSettings:
    """How a version earns the right to serve, and what takes it away."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    enabled: bool = True
    """Whether versions are held, watched and taken back. False: every finite update is served."""
    may_lose: float = 0.10
    """Share of what people approved that a new version may answer otherwise, in each kind of response."""
    hold_at: float = 20.0
    """Evidence (an e-value) of more loss than that from which an update is held. With independent responses,
    at most 1 in 20 updates is held for nothing."""
    per_kind: int = 16
    """Approved responses of one kind that a version is asked for. A kind is a tool with its flags,
    or text."""
    per_source: int = 6
    """Of these, how many may come from one source (a key) if others approved such responses
    too; an equal part of them if that is more."""
    share_of_update: float = 0.2
    """Tokens of these responses, as a share of the update's own work, but at least 4,096; the kinds
    take turns."""
    may_end_badly: float = 0.15
    """Share of people's requests that may end badly: in displeasure without a hint, in repeated calls, cut
    before their client wanted, or never."""
    alarm_at: float = 100.0
    """Evidence of more than that from which what was learned since the confirmed version is taken back. In
    simulations a false alarm came after 1,300 requests of which an eighth ended badly, and an alarm after 46
    at twice `may_end_badly`, after 13 if half of them ended badly."""
    confirm_after: int = 6
    """Requests that must end well, with none between them that ends badly, to confirm the version that served
    the first of them. Of the newest 24, no larger share than `may_end_badly` may have ended badly. A
    complaint with a hint does not count."""
    no_end_s: float = 1800.0
    """Seconds without a result after a tool call until the request counts as never ended."""

    def __post_init__(self) -> None:
        within(self, 0, 1, "may_lose", "may_end_badly", "share_of_update")
        above(self, 0, "may_lose", "may_end_badly", "no_end_s")
        above(self, 1, "hold_at", "alarm_at")
        at_least(self, 1, "per_kind", "per_source", "confirm_after")
