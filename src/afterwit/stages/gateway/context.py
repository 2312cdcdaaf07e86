"""What the endpoints share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from afterwit.engines.port import Engine
from afterwit.stages.gateway.auth.keyring import KeyRing
from afterwit.stages.gateway.http.inflight import InFlight
from afterwit.stages.gateway.settings import GatewaySettings
from afterwit.stages.gateway.status.metrics import Metrics
from afterwit.store import AsyncStore
from afterwit.wire.model_text.render import Renderer


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
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
    keys: KeyRing
    load: InFlight
    metrics: Metrics
    wake_judge: Callable[[], None]
    now: Callable[[], float]
    """Seconds since the epoch."""
    entropy: Callable[[int], bytes]
    started: float
    troubles: dict[str, Trouble] = field(default_factory=dict)
    """What was wrong last with `store` or `engine`; gone when it works again."""

    @property
    def names(self) -> tuple[str, ...]:
        """Model names that this gateway answers to."""
        return (self.engine.facts.model, *self.settings.aliases)
