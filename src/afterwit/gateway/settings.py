"""The gateway's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from afterwit.chat_format.families import AUTO, check_name
from afterwit.dialects.request import RequestLimits
from afterwit.ranges import above, at_least, one_of_its_choices, within


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Limits of requests and responses, and the model's names."""

    aliases: tuple[str, ...] = ("afterwit",)
    """Further names of the model, so that clients keep theirs."""
    max_body_bytes: int = 16 * 2**20
    """Bytes of one request."""
    max_requests: int = 256
    """Choices that run or wait; one more gets a 429. With several keys, each may hold four times as many
    as are free. Bodies that arrive have the same limit."""
    max_pending_bytes: int = 256 * 2**20
    """Bytes of all unanswered requests' bodies; more get a 429."""
    retry_after_s: int = 2
    """Seconds in the Retry-After of a 429 or 503."""
    max_choices: int = 16
    """Largest `n` of a request."""
    body_timeout_s: float = 30.0
    """Seconds between two pieces of a body; a slower client is cut off."""
    response_timeout_s: float = 900.0
    """Seconds for one response, which then ends as at a length limit."""
    heartbeat_s: float = 5.0
    """Seconds of silence before a heartbeat."""
    max_tokens: int = 8192
    """Tokens of a response if the client names no limit."""
    reward_from: float = 0.5
    """Numbers by `/v1/feedback` of at least this size are rewards of 1 or -1, smaller ones 0."""
    session_credit: Literal["last", "all"] = "last"
    """The turns that get a session's reward: `last` or `all`."""
    force_temperature: float | None = None
    """Temperature of all main turns instead of the client's."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that requests may use besides loopback's. Empty with keys: any."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of other web pages that may call, such as `https://name:port` or `app://obsidian.md`."""
    key_refresh_s: float = 2.0
    """Seconds until a revoked key stops working."""
    tool_call_parser: str = AUTO
    """The form of tool calls and reasoning: one of [Models](models.md#families); `auto` follows the chat
    template, `none` leaves calls as text."""
    thread_from_bytes: int = 16_384
    """Bytes of a body, or characters of a conversation, above which a thread renders it, so that streams
    go on."""

    def __post_init__(self) -> None:
        one_of_its_choices(self)
        at_least(self, 1, "max_body_bytes", "max_pending_bytes", "max_requests", "max_choices", "max_tokens")
        above(self, 0, "body_timeout_s", "response_timeout_s", "heartbeat_s")
        at_least(self, 0, "retry_after_s", "key_refresh_s", "thread_from_bytes")
        within(self, 0, 2, "force_temperature")
        above(self, 0, "reward_from")
        within(self, 0, 1, "reward_from")
        check_name(self.tool_call_parser)

    @property
    def request_limits(self) -> RequestLimits:
        """The limits of a dialect's parser."""
        return RequestLimits(max_choices=self.max_choices, default_max_tokens=self.max_tokens)
