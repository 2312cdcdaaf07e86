"""The gateway's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from afterwit.core.ranges import above, at_least, within
from afterwit.wire.request import RequestLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Limits and names. Where it listens is `serve`'s."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    aliases: tuple[str, ...] = ("afterwit",)
    """Names that mean the served model beside its own: a client's configuration need not change with it."""
    max_body_bytes: int = 16 * 2**20
    """Bytes. The largest real request seen has 60 kB; a context of 200,000 tokens has about 1 MB."""
    max_requests: int = 256
    """Choices being generated or waiting for the engine. One more is told to come back (429)."""
    retry_after_s: int = 2
    """Seconds a client is told to wait after a 429."""
    max_choices: int = 16
    """The largest `n` of one request."""
    body_timeout_s: float = 30.0
    """Seconds between two pieces of a request's body: a sender that stalls holds no place for ever."""
    response_timeout_s: float = 900.0
    """Seconds for one whole response: what was sampled by then is delivered, cut as by a length limit."""
    max_tokens: int = 8192
    """Tokens of a response whose client names no limit; always clamped to what fits the context."""
    force_temperature: float | None = None
    """Sample main-line turns at this temperature whatever the client asked, so that all train alike."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names answered to beside loopback's; with keys and nothing here, every Host is."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of pages that may call, as `https://name:port`; a page of the same host always may."""
    key_refresh_s: float = 2.0
    """Seconds that keys are remembered: after this a revoked key is refused."""
    thread_from_bytes: int = 16_384
    """Bytes of a request's body from which rendering leaves the event loop, so that streams go on."""

    def __post_init__(self) -> None:
        at_least(self, 1, "max_body_bytes", "max_requests", "max_choices", "max_tokens")
        above(self, 0, "body_timeout_s", "response_timeout_s")
        at_least(self, 0, "retry_after_s", "key_refresh_s", "thread_from_bytes")
        within(self, 0, 2, "force_temperature")

    @property
    def request_limits(self) -> RequestLimits:
        """What a dialect's parser allows."""
        return RequestLimits(max_choices=self.max_choices, default_max_tokens=self.max_tokens)
