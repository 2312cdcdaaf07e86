"""The trace of a turn, as a real OTLP receiver reads it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from afterwit.errors import TrackerFailed
from afterwit.lifecycle import Reason
from afterwit.store import AsyncStore, Store
from afterwit.store.sqlite import SqliteStore
from afterwit.tracking.history import SETTLE_S
from afterwit.tracking.stage import Tracking
from afterwit.tracking.traces import OtlpTraces, Traces
from afterwit.turn import Kind
from tests.store.examples import HINTED, a_version, add, add_judged


@dataclass
class Collector:
    """Takes spans; `refuses` while it is set."""

    url: str = ""
    refuses: bool = False
    spans: list[Span] = field(default_factory=list)
    services: set[str] = field(default_factory=set)

    def take(self, path: str, body: bytes) -> int:
        if self.refuses:
            return 400
        assert path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.services.add(named["service.name"])
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return 200


@pytest.fixture
def collector() -> Iterator[Collector]:
    taking = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            self.send_response(taking.take(self.path, body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    taking.url = f"http://127.0.0.1:{server.server_port}"
    yield taking
    server.shutdown()
    thread.join()
    server.server_close()


def happen(store: Store) -> None:
    """One turn goes all the way, one is a side turn."""
    add_judged(store, "t1", HINTED, now=101.0)
    add(store, "t2", reason=Reason.SIDE_TURN, kind=Kind.SIDE, now=103.0)
    store.commit_version(a_version(1, ["t1"]), now=106.0)
    store.published(1, now=107.5)


async def silent(ok: bool, message: str) -> None:
    pass


async def test_a_turn_is_one_trace_from_the_request_to_the_version(
    tmp_path: Path, collector: Collector
) -> None:
    store = AsyncStore(SqliteStore.open(tmp_path / "store.db", fingerprint=None))
    clock = [100.0]
    traces = Traces(store, lambda: OtlpTraces(collector.url))
    stage = Tracking(store, {}, owner="me", now=lambda: clock[0], report=silent, traces=traces)
    assert not await stage.step()
    await store.call(happen)
    clock[0] = 106.0 + SETTLE_S
    collector.refuses = True
    with pytest.raises(TrackerFailed, match="did not take the traces of 2 turns"):
        await stage.step()
    collector.refuses = False
    assert await stage.step()
    assert not await stage.step()
    traces.close()
    await store.close()
    assert collector.services == {"afterwit"}
    of = {name: [span for span in collector.spans if span.trace_id == id_of(name)] for name in ("t1", "t2")}
    assert [span.name for span in of["t2"]] == ["request", "turn"]
    spans = {span.name: span for span in of["t1"]}
    assert len(collector.spans) == len(of["t1"]) + 2
    assert spans.keys() == {"turn", "request", "answer", "judge", "train", "version"}
    whole = spans.pop("turn")
    assert whole.parent_span_id == b""
    assert {span.parent_span_id for span in spans.values()} == {whole.span_id}
    assert (whole.start_time_unix_nano, whole.end_time_unix_nano) == (101 * 10**9, 107_500_000_000)
    assert spans["version"].start_time_unix_nano == spans["train"].end_time_unix_nano == 106 * 10**9
    said = {each.key: each.value for each in [*whole.attributes, *spans["judge"].attributes]}
    assert said["afterwit.state"].string_value == "TRAINED"
    assert (said["afterwit.reward"].int_value, said["afterwit.hinted"].bool_value) == (-1, True)
    assert HINTED.hints[0] not in str(collector.spans)


def id_of(turn: str) -> bytes:
    return sha256(turn.encode()).digest()[:16]
