"""What does the gateway add to an answer: time, processor, and work per streamed chunk?

The engine is a fake that costs next to nothing; every server runs in a process of its own and tells its CPU
time. Left out: models, slow disks.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import uvloop

from afterwit.stages.gateway.settings import GatewaySettings
from afterwit.wire.model_text.render import Renderer
from afterwit.wire.openai_chat import OPENAI_CHAT
from benchmarks.asked import Asked
from benchmarks.gateway_servers import CHUNKS, Server, served
from benchmarks.measure import Row, at_least, at_most, cpu_seconds, interleaved, itself, noted, ratios
from tests.fakes.models import tiny_qwen3

CLIENTS, STREAMS = 32, 8
CALLER = itertools.count()
LATENCY = "prompt, three calls of the store's thread and the answer's text come one after the other"
PROCESSOR = "of the target, the prompt's text and ids alone take half, three calls of the store as much again"
STREAM = "reading text and calls off each token, an ASGI server, and a request's own work in each stream"


def rows(asked: Asked) -> Iterator[Row]:
    count = 100 if asked.quick else 1000
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        model = tiny_qwen3(Path(name) / "model")
        ours, bare, pieces = (
            stack.enter_context(served(variant, model, Path(name) / variant))
            for variant in ("gateway", "bare", "pieces")
        )
        yield _latency(asked, ours, bare, count)
        yield from _processor(asked, ours, bare, count, _prompt_cpu(model, count))
        yield _stream(asked, ours, pieces, count)


def _latency(asked: Asked, ours: Server, bare: Server, count: int) -> Row:
    """G1: the median request of one client."""
    variants = {"floor": lambda: _middle(bare, count), "gateway": lambda: _middle(ours, count)}
    timed, note = interleaved(variants, runs=asked.runs, clock=itself)
    return Row(
        id="G1",
        what="milliseconds that a recorded answer takes longer, one client",
        values=tuple((run["gateway"] - run["floor"]) * 1e3 for run in timed),
        target=at_most(0.5),
        floor="a bare server",
        note=note,
        why=LATENCY,
    )


def _middle(server: Server, count: int) -> float:
    return statistics.median(uvloop.run(_load(server.port, 1, count)))


def _processor(asked: Asked, ours: Server, bare: Server, count: int, prompt: float) -> Iterator[Row]:
    """G2."""
    variants = {
        name: lambda server=server: _cpu(server, CLIENTS, 4 * count)
        for name, server in (("floor", bare), ("gateway", ours))
    }
    timed, note = interleaved(variants, runs=asked.runs, clock=itself)
    millis = tuple(run["gateway"] * 1e3 for run in timed)
    yield Row(
        id="G2",
        what=f"CPU milliseconds of a recorded request, {CLIENTS} clients",
        values=millis,
        target=at_most(0.40),
        note=noted(f"{prompt * 1e3:.2f} of it render and tokenise the prompt", note),
        why=PROCESSOR,
    )
    yield Row(
        id="G2",
        what="requests a second of one core",
        values=tuple(1e3 / each for each in millis),
        target=at_least(2500),
        why=PROCESSOR,
    )


def _stream(asked: Asked, ours: Server, pieces: Server, count: int) -> Row:
    """G3."""
    variants = {
        "floor": lambda: _cpu(pieces, STREAMS, count, stream=True),
        "gateway": lambda: _cpu(ours, STREAMS, count, stream=True),
    }
    timed, note = interleaved(variants, runs=asked.runs, clock=itself)
    return Row(
        id="G3",
        what=f"CPU of a stream of {CHUNKS} chunks / a plain TCP writer's",
        values=ratios(timed, "gateway"),
        target=at_most(2.5),
        floor="a plain TCP writer",
        note=noted(
            f"{statistics.median(run['gateway'] for run in timed) * 1e6 / CHUNKS:.0f} us a chunk", note
        ),
        why=STREAM,
    )


def _cpu(server: Server, clients: int, count: int, *, stream: bool = False) -> float:
    """The server's CPU seconds per request."""
    before = server.cpu_seconds()
    uvloop.run(_load(server.port, clients, count, stream=stream))
    return (server.cpu_seconds() - before) / count


def _prompt_cpu(model: Path, count: int) -> float:
    """CPU seconds of rendering and tokenising one request's prompt."""
    renderer = Renderer.load(model)
    bodies = [orjson.loads(_request(stream=False).partition(b"\r\n\r\n")[2]) for _ in range(count)]
    limits = GatewaySettings().request_limits
    asked = [OPENAI_CHAT.parse(body, limits).conversation for body in bodies]
    return cpu_seconds(lambda: [renderer.prompt_ids(conversation) for conversation in asked]) / count


async def _load(port: int, clients: int, count: int, *, stream: bool = False) -> list[float]:
    """Seconds of each of `count` requests, by clients that each have a connection."""
    waiting = iter([_request(stream=stream) for _ in range(count)])
    seconds: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for data in waiting:
            began = time.perf_counter()
            await _ask(reader, writer, data)
            seconds.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return seconds


def _request(*, stream: bool) -> bytes:
    """A first request of a session of its own: about 1 kB, nothing in it was ever asked before."""
    words = "The test fails because the fixture is opened twice, see line forty two. " * 10
    body: dict[str, Any] = {"model": "tiny", "stream": stream, "max_tokens": CHUNKS if stream else 64}
    body["messages"] = [
        {"role": "system", "content": words},
        {"role": "user", "content": f"{os.getpid()} {next(CALLER)}: where?"},
    ]
    data = orjson.dumps(body)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n"
    return f"{head}content-type: application/json\r\n\r\n".encode() + data


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
    """One request and its whole answer, by content-length or in chunks."""
    writer.write(data)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 200"), head
    if b"content-length: " in head:
        await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
    else:
        while (size := int((await reader.readuntil(b"\r\n")).strip(), 16)) > 0:
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
