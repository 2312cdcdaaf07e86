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

from afterwit.store.sqlite import SqliteStore
from afterwit.tracking import traces
from tests.store.examples import HINTED, a_version, add_judged


@dataclass
class Collector:
    """Takes spans."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    services: set[str] = field(default_factory=set)

    def take(self, path: str, body: bytes) -> int:
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


def test_a_turn_is_one_trace_and_nothing_is_recorded_before_the_start(
    tmp_path: Path, collector: Collector
) -> None:
    store = SqliteStore.open(tmp_path / "store.db", fingerprint=None)
    add_judged(store, "t1", HINTED, now=101.0)
    store.commit_version(a_version(1, ["t1"]), now=106.0)
    traces.span("request", "t1", 90.0, 95.0)
    stop = traces.start(collector.url)
    traces.span("request", "t1", 101.0, 102.0, session="s", refused=None)
    traces.span("judge", "t1", 103.0, 104.5, reward=-1, hinted=True)
    traces.trained(store)
    traces.span("request", "t2", 101.0, 102.0)
    stop()
    traces.span("request", "t3", 101.0, 102.0)
    store.close()
    assert collector.services == {"afterwit"}
    of = {name: [span for span in collector.spans if span.trace_id == id_of(name)] for name in ("t1", "t2")}
    assert [span.name for span in of["t2"]] == ["request"]
    assert len(collector.spans) == len(of["t1"]) + 1
    spans = {span.name: span for span in of["t1"]}
    assert spans.keys() == {"request", "judge", "train"}
    assert spans["train"].end_time_unix_nano == 106 * 10**9
    judged = {each.key: each.value for each in spans["judge"].attributes}
    assert (judged["afterwit.reward"].int_value, judged["afterwit.hinted"].bool_value) == (-1, True)
    asked = {each.key: each.value.string_value for each in spans["request"].attributes}
    assert asked == {"afterwit.turn": "t1", "afterwit.session": "s"}
    assert HINTED.hints[0] not in str(collector.spans)


def id_of(turn: str) -> bytes:
    return sha256(turn.encode()).digest()[:16]
