"""What does the gateway add to an answer: time, processor, and work per streamed chunk?

G1: added median latency with recording, one client, against a bare application that asks the same engine.
G2: the server's CPU time per recorded request with 32 clients, and the requests a second of one core; beside
    it what rendering and tokenising the same prompt costs alone, which is part of it.
G3: CPU of 100-chunk streams against a plain TCP server that writes as many bytes in 100 pieces.
The engine is a fake that costs next to nothing; servers run in processes of their own, variants take turns,
and a round whose two floor timings differ by over a tenth is thrown away. Left out: models, slow disks.
`python -m benchmarks.gateway [--requests N] [--rounds N] [--out FILE]`
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import orjson
import psutil
import uvloop

from afterwit.core.turn import Basis, Sampling
from afterwit.engines.port import Engine, Facts, Generate, Step
from afterwit.stages.gateway.app import build_app
from afterwit.stages.gateway.server import Listener, bind
from afterwit.stages.gateway.settings import GatewaySettings
from afterwit.store import AsyncStore, Store
from afterwit.wire.chat_request import Limits, parse_chat
from afterwit.wire.render import Renderer

CHUNKS, CLIENTS, STREAMS = 100, 32, 8
TARGETS = {"G1_added_ms": 0.5, "G2_cpu_ms": 0.40, "G2_requests_per_core_s": 2500, "G3_ratio": 2.5}
TOLERANCE = 0.10
CALLER = itertools.count()


class Quick:
    """An engine that answers at once: in one step, or in CHUNKS of one token where so many are asked for."""

    version = 0

    def __init__(self, renderer: Renderer) -> None:
        self._words = renderer.encode("It is in the second file, on line forty two.")
        self._many = tuple(itertools.islice(itertools.cycle(renderer.encode(" the file")), CHUNKS))
        self.end = min(renderer.end_ids)
        self.facts = Facts(
            name="quick",
            model="tiny",
            context_length=4096,
            vocabulary=renderer.vocabulary,
            end_ids=renderer.end_ids,
            basis=Basis.PROCESSED,
            dtype="float32",
            fingerprint="quick",
        )

    async def generate(self, request: Generate) -> AsyncIterator[Step]:
        if request.sampling.max_tokens != CHUNKS:
            yield _step((*self._words, self.end), "stop")
            return
        for place, token in enumerate(self._many):
            yield _step((token,), "length" if place == CHUNKS - 1 else None)


def _step(ids: tuple[int, ...], ended: str | None) -> Step:
    count = len(ids)
    flags = (False,) * count
    return Step(ids=ids, logprobs=(-0.5,) * count, versions=(0,) * count, forced=flags, ended=ended)


def bare(engine: Quick, renderer: Renderer) -> Callable[..., Awaitable[None]]:
    """The least that is a server: read, ask the engine, answer."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        json.loads((await receive())["body"])
        request = Generate(prompt_ids=(1, 2, 3), sampling=Sampling(max_tokens=64))
        ids = [token async for step in engine.generate(request) for token in step.ids]
        payload = orjson.dumps({"text": renderer.decode(ids)})
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(payload)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": payload})

    return app


class Pieces(asyncio.Protocol):
    """The floor of a stream: for each request CHUNKS writes of as many bytes as a chunk of ours has."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._task = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        piece = b"e0\r\n" + b"x" * 0xE0 + b"\r\n"
        self._transport.write(head)
        for _ in range(CHUNKS):
            self._transport.write(piece)
            await asyncio.sleep(0)
        self._transport.write(b"0\r\n\r\n")


def application(variant: str, renderer: Renderer, folder: Path) -> Any:
    engine = Quick(renderer)
    if variant == "bare":
        return bare(engine, renderer)
    store = AsyncStore(Store.open(folder / "store.db", fingerprint=None))
    return build_app(cast(Engine, engine), renderer, store, GatewaySettings())


async def serve(variant: str, model: Path, folder: Path) -> None:
    """One server until it is killed; its port goes to standard output."""
    sock = bind("127.0.0.1", 0)
    if variant == "pieces":
        server = await asyncio.get_running_loop().create_server(Pieces, sock=sock)
        await server.start_serving()
    else:
        renderer = Renderer.load(model)
        await Listener(application(variant, renderer, folder), sock).start()
    print(sock.getsockname()[1], flush=True)
    await asyncio.Event().wait()


@contextmanager
def server(variant: str, model: Path, folder: Path) -> Iterator[tuple[int, psutil.Process]]:
    command = [sys.executable, __file__, "--serve", variant, "--model", str(model), "--folder", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), psutil.Process(process.pid)
        finally:
            process.kill()


def request(*, stream: bool) -> bytes:
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


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
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


async def load(port: int, clients: int, count: int, *, stream: bool = False) -> list[float]:
    """Seconds of each of `count` requests by so many clients, each on a connection of its own."""
    waiting = iter([request(stream=stream) for _ in range(count)])
    seconds: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for data in waiting:
            began = time.perf_counter()
            await ask(reader, writer, data)
            seconds.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return seconds


def latency(model: Path, folder: Path, variant: str, count: int) -> float:
    """Median milliseconds at one client."""
    with server(variant, model, folder) as (port, _):
        uvloop.run(load(port, 1, 100))
        return statistics.median(uvloop.run(load(port, 1, count))) * 1e3


def cpu(model: Path, folder: Path, variant: str, clients: int, count: int, *, stream: bool) -> float:
    """The server's CPU milliseconds per request."""
    with server(variant, model, folder) as (port, process):
        uvloop.run(load(port, clients, 100, stream=stream))
        before = process.cpu_times()
        uvloop.run(load(port, clients, count, stream=stream))
        after = process.cpu_times()
    spent = after.user + after.system - before.user - before.system
    return spent / count * 1e3


def prompt_cpu(model: Path, count: int) -> float:
    """CPU milliseconds of rendering and tokenising one request's prompt."""
    renderer = Renderer.load(model)
    bodies = [orjson.loads(request(stream=False).partition(b"\r\n\r\n")[2]) for _ in range(count)]
    asked = [parse_chat(body, Limits()).conversation for body in bodies]
    before = time.process_time()
    for conversation in asked:
        renderer.prompt_ids(conversation)
    return (time.process_time() - before) / count * 1e3


def one_round(model: Path, count: int) -> dict[str, float] | None:
    """All measures once; None where the machine was not quiet."""
    with tempfile.TemporaryDirectory() as name:
        folders = (Path(name) / str(number) for number in itertools.count())

        def fresh() -> Path:
            folder = next(folders)
            folder.mkdir()
            return folder

        floor = latency(model, fresh(), "bare", count)
        ours = latency(model, fresh(), "gateway", count)
        again = latency(model, fresh(), "bare", count)
        busy = cpu(model, fresh(), "gateway", CLIENTS, 4 * count, stream=False)
        streamed = cpu(model, fresh(), "gateway", STREAMS, count, stream=True)
        pieces = cpu(model, fresh(), "pieces", STREAMS, count, stream=True)
    if abs(floor - again) > TOLERANCE * max(floor, again):
        return None
    return {
        "G1_added_ms": ours - (floor + again) / 2,
        "G1_bare_ms": floor,
        "G2_cpu_ms": busy,
        "G2_of_it_prompt_ms": prompt_cpu(model, count),
        "G2_requests_per_core_s": 1e3 / busy,
        "G3_stream_cpu_ms": streamed,
        "G3_ratio": streamed / pieces,
    }


def result_of(rounds: list[dict[str, float]], rejected: int) -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "question": "what the gateway adds: minimum, median and maximum over the rounds",
        "commit": commit.stdout.strip(),
        "machine": {
            "platform": platform.platform(),
            "cpu": platform.processor(),
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "python": platform.python_version(),
        },
        "rounds": len(rounds),
        "rounds_rejected": rejected,
        "target": TARGETS,
        "result": {
            name: [min(values), statistics.median(values), max(values)]
            for name in rounds[0]
            for values in [[one[name] for one in rounds]]
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", choices=("bare", "gateway", "pieces"), help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        uvloop.run(serve(asked.serve, asked.model, asked.folder))
        return
    from tests.fakes.models import tiny_qwen3

    with tempfile.TemporaryDirectory() as made:
        model = tiny_qwen3(Path(made) / "model")
        tried = [one_round(model, asked.requests) for _ in range(asked.rounds)]
    rounds = [one for one in tried if one is not None]
    if not rounds:
        raise SystemExit("the machine was never quiet: the floor's two timings differed by more than a tenth")
    text = json.dumps(result_of(rounds, len(tried) - len(rounds)), indent=2)
    print(text)
    if asked.out is not None:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
