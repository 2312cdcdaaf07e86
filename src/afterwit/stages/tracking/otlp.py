"""Traces to an OpenTelemetry collector, by OTLP over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import set_span_in_context

from afterwit import __version__
from afterwit.core.errors import TrackerFailed
from afterwit.stages.tracking.spans import Span, spans_of, trace_id
from afterwit.store import EndedTurn

TIMEOUT_S = 10.0


class OtlpTraces:
    """Sends the traces of turns. Headers, certificates and compression come from OTEL_EXPORTER_OTLP_..."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._exporter = OTLPSpanExporter(f"{url.rstrip('/')}/v1/traces", timeout=TIMEOUT_S)
        self._ids, self._ended = _GivenIds(), _Ended()
        resource = Resource.create({"service.name": "afterwit", "service.version": __version__})
        provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer("afterwit", __version__)

    def send(self, turns: Sequence[EndedTurn]) -> None:
        """Raises TrackerFailed if the collector does not take them all."""
        for turn in turns:
            self._ids.trace = trace_id(turn.turn)
            whole, *parts = spans_of(turn)
            parent = self._begin(whole, None)
            for part in parts:
                self._begin(part, set_span_in_context(parent)).end(_ns(part.ended))
            parent.end(_ns(whole.ended))
        spans = self._ended.taken()
        if spans and self._exporter.export(spans) is not SpanExportResult.SUCCESS:
            raise TrackerFailed(
                f"tracking.otlp_url {self._url} did not take the traces of {len(turns)} turns"
            )

    def close(self) -> None:
        """Nothing may be sent afterwards."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _begin(self, span: Span, context: Any) -> Any:
        self._ids.span = span.id
        return self._tracer.start_span(
            span.name, context=context, start_time=_ns(span.begun), attributes=dict(span.attributes)
        )


class _GivenIds(IdGenerator):
    """The ids of the next span."""

    trace = span = 1

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class _Ended(SpanProcessor):
    """Keeps what has ended until it is taken."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def taken(self) -> list[ReadableSpan]:
        taken, self._spans = self._spans, []
        return taken


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
