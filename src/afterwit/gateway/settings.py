"""The gateway's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from afterwit.chat_format.families import AUTO, check_name
from afterwit.dialects.request import RequestLimits
from afterwit.ranges import above, at_least, within


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Limits and names. The address belongs to `serve`."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    aliases: tuple[str, ...] = ("afterwit",)
    """Other names of the served model: a client's configuration can stay when the model changes."""
    max_body_bytes: int = 16 * 2**20
    """Bytes. The largest real request seen has 60 kB; a context of 200,000 tokens has about 1 MB."""
    max_requests: int = 256
    """Choices being sampled or waiting for the engine; one more gets a 429. As many bodies are received at
    once; of more, the one that came first is cut off."""
    max_pending_bytes: int = 256 * 2**20
    """Bytes of the bodies of all requests that are not answered yet. More get a 429."""
    retry_after_s: int = 2
    """Seconds that a client should wait after a 429 or 503."""
    max_choices: int = 16
    """The largest `n` of one request."""
    body_timeout_s: float = 30.0
    """Seconds between two pieces of a request's body: a client that stalls is cut off."""
    response_timeout_s: float = 900.0
    """Seconds for one response. It then ends as at a length limit, with what was sampled."""
    heartbeat_s: float = 5.0
    """Seconds after which a silent stream sends a heartbeat: clients and proxies cut one that sends nothing
    for 30 to 300 seconds, and a long prompt or a long tool call takes longer on a slow machine."""
    max_tokens: int = 8192
    """Tokens of a response if the client names no limit. Any limit is cut to what fits the context."""
    force_temperature: float | None = None
    """Temperature of all main-line turns, whatever the client asked, so that all train alike."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that requests may use beside loopback's. Empty, with keys: any Host."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may call, as `https://name:port`. Pages of the same host always may."""
    key_refresh_s: float = 2.0
    """Seconds between two readings of the keys: a revoked key is refused after this time."""
    tool_call_parser: str = AUTO
    """How the model writes tool calls and reasoning: `auto` takes it from the chat template, a name of the
    table in [Models](models.md) is for a template that does not show it. `none`: calls stay text."""
    thread_from_bytes: int = 16_384
    """Bytes of a request's body, or characters of its conversation. Longer ones are rendered in a thread, so
    that streams go on. From eight times as much on, the body is read there too."""

    def __post_init__(self) -> None:
        at_least(self, 1, "max_body_bytes", "max_pending_bytes", "max_requests", "max_choices", "max_tokens")
        above(self, 0, "body_timeout_s", "response_timeout_s", "heartbeat_s")
        at_least(self, 0, "retry_after_s", "key_refresh_s", "thread_from_bytes")
        within(self, 0, 2, "force_temperature")
        check_name(self.tool_call_parser)

    @property
    def request_limits(self) -> RequestLimits:
        """What a dialect's parser allows."""
        return RequestLimits(max_choices=self.max_choices, default_max_tokens=self.max_tokens)
