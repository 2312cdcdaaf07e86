"""What does the gateway add to an answer, and to a streamed chunk, in CPU time?

The engine is a fake that costs next to nothing; every server runs in a process of its own and reports its CPU
time, which other work on the machine changes less than the clock's. Each prompt has 1 kB and was never seen
before. What cannot be left out of a recorded answer is measured alone: the prompt's text and ids, and one
durable write; then the same with a bare server's request, since every program that answers clients needs one.
Left out: models, slow disks, waiting.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.agent_text import agent_model
from benchmarks.asked import Asked
from benchmarks.gateway_load import as_http, load, small_body, small_requests
from benchmarks.gateway_servers import Server, served
from benchmarks.measure import Row, at_most, interleaved, itself, noted, ratios
from benchmarks.quick_engine import CHUNKS, IDLE
from benchmarks.recorded_alone import RecordedAlone

CLIENTS, STREAMS = 32, 8
GIB = 2**30
ALONE = "the prompt's text and ids and one durable write"
SERVED = f"{ALONE}, and a bare server's request"


def rows(asked: Asked) -> Iterator[Row]:
    count = 100 if asked.quick else 1000
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        model = agent_model(Path(name) / "model")
        ours, bare, pieces = (
            stack.enter_context(served(variant, model, Path(name) / variant))
            for variant in ("gateway", "bare", "pieces")
        )
        alone = partial(RecordedAlone(model).cpu_seconds, count)
        yield from _answer(asked, ours, bare, count, alone)
        yield _stream(asked, ours, pieces, count)
        yield _idle(ours)


def _answer(asked: Asked, ours: Server, bare: Server, count: int, alone: Any) -> Iterator[Row]:
    """G1 and G2."""
    variants = {
        "floor": alone,
        "one": lambda: cpu(ours, 1, count),
        "bare": lambda: cpu(bare, 1, count),
        "bare processor": lambda: cpu(bare, CLIENTS, 2 * count),
        "processor": lambda: cpu(ours, CLIENTS, 2 * count),
    }
    timed, note = interleaved(variants, runs=asked.runs, clock=itself)
    floor = statistics.median(run["floor"] for run in timed)
    millis = statistics.median(run["processor"] for run in timed) * 1e3
    yield Row(
        id="G1",
        what="CPU of a recorded request beyond a bare server's, one client / alone",
        values=tuple((run["one"] - run["bare"]) / run["floor"] for run in timed),
        target=at_most(1.8),
        floor=ALONE,
        note=noted(f"alone {floor * 1e3:.2f} ms", note),
        why="see below",
    )
    yield Row(
        id="G2",
        what=f"CPU of a recorded request, {CLIENTS} clients / alone",
        values=ratios(timed, "processor"),
        target=at_most(2.0),
        floor=ALONE,
        note=noted(f"{millis:.2f} ms, {1e3 / millis:.0f} requests a second of one core", note),
        why="see below",
    )
    yield Row(
        id="g2",
        what=f"CPU of a recorded request, {CLIENTS} clients / alone with a bare server's request",
        values=tuple(run["processor"] / (run["floor"] + run["bare processor"]) for run in timed),
        floor=SERVED,
    )


def _stream(asked: Asked, ours: Server, pieces: Server, count: int) -> Row:
    """G3."""
    variants = {
        "floor": lambda: cpu(pieces, STREAMS, count, stream=True),
        "gateway": lambda: cpu(ours, STREAMS, count, stream=True),
    }
    timed, note = interleaved(variants, runs=asked.runs, clock=itself)
    micros = statistics.median(run["gateway"] for run in timed) * 1e6 / CHUNKS
    return Row(
        id="G3",
        what=f"CPU of a stream of {CHUNKS} chunks / a plain TCP writer's",
        values=ratios(timed, "gateway"),
        target=at_most(4),
        floor="a plain TCP writer",
        note=noted(f"{micros:.0f} us a chunk", note),
        why="see below",
    )


def cpu(server: Server, clients: int, count: int, *, stream: bool = False) -> float:
    """The server's CPU seconds per request."""
    requests = small_requests(count, stream=stream)
    before = server.cpu_seconds()
    uvloop.run(load(server.port, clients, requests))
    return (server.cpu_seconds() - before) / count


def _idle(ours: Server) -> Row:
    """G6."""
    return Row(
        id="G6",
        what=f"GiB of the server with {IDLE} streams that wait for their next token",
        values=(uvloop.run(_peak_of_idle(ours)) / GIB,),
        target=at_most(1e9 / GIB),
    )


async def _peak_of_idle(ours: Server) -> int:
    """The server's memory when the last of the streams has begun."""
    body = small_body(stream=True) | {"max_tokens": IDLE}
    opened = [await asyncio.open_connection("127.0.0.1", ours.port) for _ in range(IDLE)]
    for reader, writer in opened:
        writer.write(as_http(body))
        await reader.readuntil(b"line forty two.")
    peak = ours.peak_bytes()
    for _, writer in opened:
        writer.close()
    return peak
