"""Health: the stages' reports from the store, with what the gateway knows. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from afterwit.core.errors import StoreError
from afterwit.stages.gateway.context import Gateway
from afterwit.store import Pause, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """`serving` is for load balancers: serving goes on while the learner is down."""

    serving: bool
    version: int
    stages: tuple[Status, ...]
    pause: Pause | None
    """Whether a person paused learning."""

    def to_dict(self, *, details: bool) -> dict[str, Any]:
        """The page. Without `details` only one word, because messages may name files and addresses."""
        healthy = all(status.ok for status in self.stages)
        word = ("ready" if healthy else "degraded") if self.serving else "not_serving"
        if not details:
            return {"status": word}
        stages = [
            {"stage": status.stage, "ok": status.ok, "message": status.message, "at": status.at}
            | ({"machine": status.machine} if status.machine else {})
            for status in self.stages
        ]
        return {"status": word, "version": self.version, "paused": _paused(self.pause), "stages": stages}


ENGINE_DOWN_S = 30.0
"""Seconds for which a failed engine counts as down. After them, requests find out whether it still is."""


def _paused(pause: Pause | None) -> dict[str, Any] | None:
    return None if pause is None else {"since": pause.since, "words": pause.words}


def health_of(
    gateway: Gateway, statuses: Sequence[Status] | StoreError, pause: Pause | None = None
) -> Health:
    """Combine what the stages report with what the gateway knows."""
    now = gateway.now()
    faults = {name: fault.message for name, fault in gateway.faults.items()}
    faults |= {f"{name} server": words for name, words in gateway.servers().items()}
    if (words := gateway.engine.fault or gateway.engine.reduced) is not None:
        faults["engine"] = words
    if isinstance(statuses, StoreError):
        faults.setdefault("store", f"The store does not answer: {statuses}")
        statuses = ()
    if gateway.in_flight.draining:
        faults["gateway"] = "Shutting down: running answers finish, new requests are refused."
    own = {name: Status(stage=name, ok=False, message=words, at=now) for name, words in faults.items()}
    fine = Status(stage="gateway", ok=True, message=f"{gateway.in_flight.count} answers under way.", at=now)
    stages = {"gateway": fine} | {status.name: status for status in statuses} | own
    return Health(
        serving=not gateway.in_flight.draining and not _engine_down(gateway, now),
        version=gateway.engine.version,
        pause=pause,
        stages=tuple(stages[name] for name in sorted(stages)),
    )


def _engine_down(gateway: Gateway, now: float) -> bool:
    fault = gateway.faults.get("engine")
    return gateway.engine.fault is not None or (fault is not None and now - fault.at < ENGINE_DOWN_S)
