"""Spans for an OpenTelemetry collector, recorded as things happen. Nothing is recorded before `start`."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from afterwit import __version__

if TYPE_CHECKING:
    from afterwit.store import Store

TIMEOUT_S = 10.0
"""Seconds for one delivery to the collector."""

_tracer: Any = None
_turn: ContextVar[str] = ContextVar("turn")


def start(url: str | None) -> Callable[[], None]:
    """Send spans to a collector (OTLP over HTTP), if there is one. Returns what sends the rest and stops.

    Headers, certificates and batch sizes come from OTEL_... variables. Raises ModuleNotFoundError without the
    extra `otlp`.
    """
    global _tracer
    if url is None:
        return lambda: None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class TurnIds(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            return trace_id(_turn.get())

    provider = TracerProvider(
        resource=Resource.create({"service.name": "afterwit", "service.version": __version__}),
        id_generator=TurnIds(),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(f"{url.rstrip('/')}/v1/traces", timeout=TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracer = provider.get_tracer("afterwit", __version__)

    def stop() -> None:
        global _tracer
        _tracer = None
        provider.shutdown()

    return stop


def span(name: str, turn: str, began: float, ended: float, **attributes: str | int | bool | None) -> None:
    """Record a span of a turn; times are seconds since the epoch. Attributes that are None are left out.

    All spans of a turn form one trace, whichever process records them.
    """
    if _tracer is None:
        return
    from opentelemetry.context import Context

    _turn.set(turn)
    known = {"turn": turn, **attributes}
    known = {f"afterwit.{key}": value for key, value in known.items() if value is not None}
    begun = _tracer.start_span(name, context=Context(), start_time=_ns(began), attributes=known)
    begun.end(_ns(max(began, ended)))


def trained(store: Store) -> None:
    """Record the span `train` of each turn that trained the newest version, until its commit."""
    if _tracer is None:
        return
    for version in store.newest_versions(limit=1):
        for each in store.learned(version=version.number):
            span("train", each.turn, version.created, version.committed_at, version=version.number)


def trace_id(turn: str) -> int:
    """The first 16 bytes of the SHA-256 of a turn's id, the same everywhere and always; never 0."""
    return int.from_bytes(sha256(turn.encode()).digest()[:16]) or 1


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
