"""What the endpoints share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from afterwit.engines.port import Engine
from afterwit.stages.gateway.auth.key_cache import KeyCache
from afterwit.stages.gateway.http.in_flight import InFlight
from afterwit.stages.gateway.settings import GatewaySettings
from afterwit.stages.gateway.status.metrics import Metrics
from afterwit.store import AsyncStore
from afterwit.wire.model_text.render import Renderer


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that fails, in a plain sentence, and when it was last seen to."""

    message: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """One gateway: its neighbours, its limits, and what it knows of its own health."""

    engine: Engine
    renderer: Renderer
    store: AsyncStore
    settings: GatewaySettings
    keys: KeyCache
    in_flight: InFlight
    metrics: Metrics
    wake_judge: Callable[[], None]
    now: Callable[[], float]
    """Seconds since the epoch."""
    entropy: Callable[[int], bytes]
    started: float
    faults: dict[str, Fault] = field(default_factory=dict)
    """What was wrong last with `store` or `engine`; gone when it works again."""

    @property
    def names(self) -> tuple[str, ...]:
        """Model names that this gateway answers to."""
        return (self.engine.facts.model, *self.settings.aliases)
