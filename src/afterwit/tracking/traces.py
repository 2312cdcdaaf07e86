"""Which turns' traces are sent, and how far that has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol

import orjson
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import set_span_in_context

from afterwit import __version__
from afterwit.errors import TrackerFailed
from afterwit.store import AsyncStore, EndedTurn, Store
from afterwit.tracking.history import SETTLE_S

NOTE = "tracking.traces"


AT_ONCE = 200
"""Turns whose traces are sent together."""


class TraceSink(Protocol):
    """Where traces go."""

    def send(self, turns: Sequence[EndedTurn]) -> None:
        """All of them, or it raises."""
        ...

    def close(self) -> None: ...


class Traces:
    """Sends the trace of each turn that ended, a minute later, so that its version is served by then.

    It begins with turns that end from its first start on.
    """

    def __init__(self, store: AsyncStore, opened: Callable[[], TraceSink]) -> None:
        self._store, self._opened = store, opened
        self._sink: TraceSink | None = None

    async def step(self, now: float) -> bool:
        """Send the next ones; whether there were any. What the sink raises leaves the place where it is."""
        after = await self._store.call(lambda store: _place(store, now))
        turns = await self._store.call(
            lambda store: store.ended_turns(after=after, until=now - SETTLE_S, limit=AT_ONCE)
        )
        if not turns:
            return False
        await asyncio.to_thread(self._send, turns)
        last = turns[-1].ended, turns[-1].seq
        await self._store.call(lambda store: store.set_note(NOTE, orjson.dumps(last).decode()))
        return True

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _send(self, turns: Sequence[EndedTurn]) -> None:
        if self._sink is None:
            self._sink = self._opened()
        self._sink.send(turns)


def _place(store: Store, now: float) -> tuple[float, int]:
    """The time and `seq` of the last turn that was sent; at first, now."""
    text = store.note(NOTE)
    if text is None:
        store.set_note(NOTE, orjson.dumps((now, 0)).decode())
        return now, 0
    at, seq = orjson.loads(text)
    return at, seq


Attribute = str | int | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A named stretch of time; the first of a trace is the parent of the others."""

    name: str
    id: int
    """8 bytes, never 0."""
    begun: float
    ended: float
    """Seconds since the epoch."""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


def trace_id(turn: str) -> int:
    """16 bytes, never 0: the same for a turn everywhere and always."""
    return _number(turn, 16)


def spans_of(turn: EndedTurn) -> list[Span]:
    """The whole turn first; within it what is known of: the request, until its response was whole; the
    answer, from there until what followed was known; the judge, until the verdict; the update that trained on
    it; and the version, from its commit until it was served.

    A turn that ends a second time, after a late reply, gives spans of other ids in the same trace.
    """
    known = [
        Span(name=name, id=_id(turn, name), begun=begun, ended=max(begun, ended), attributes=more)
        for name, begun, ended, more in _parts(turn)
        if begun is not None and ended is not None
    ]
    whole = Span(
        name="turn",
        id=_id(turn, "turn"),
        begun=turn.asked,
        ended=max([turn.asked, turn.ended, *(each.ended for each in known)]),
        attributes=_said(
            turn=turn.turn,
            session=turn.session,
            kind=str(turn.kind),
            state=str(turn.state),
            reason=None if turn.reason is None else str(turn.reason),
        ),
    )
    return [whole, *known]


def _parts(turn: EndedTurn) -> Iterator[tuple[str, float | None, float | None, dict[str, Attribute]]]:
    yield "request", turn.asked, turn.recorded, _said(sampled_by_version=turn.oldest_version)
    yield "answer", turn.recorded or turn.asked, turn.answered, {}
    verdict = _said(reward=turn.reward, hinted=turn.hinted)
    yield "judge", turn.answered or turn.recorded, turn.judged, verdict
    yield "train", turn.update_began, turn.committed, _said(version=turn.version)
    yield "version", turn.committed, turn.published, _said(version=turn.version)


def _said(**values: Attribute | None) -> dict[str, Attribute]:
    return {f"afterwit.{name}": value for name, value in values.items() if value is not None}


def _id(turn: EndedTurn, name: str) -> int:
    return _number(f"{turn.turn} {name} {turn.ended}", 8)


def _number(words: str, size: int) -> int:
    return int.from_bytes(sha256(words.encode()).digest()[:size]) or 1


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
