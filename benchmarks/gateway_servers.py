"""What the gateway is measured with: an engine that costs next to nothing, and servers to compare with.

Each runs in a process of its own and tells through a pipe its port, and what CPU time it has used so far.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from time import process_time
from typing import Any, cast

import uvloop

from afterwit.core.errors import RequestError
from afterwit.core.turn import Sampling
from afterwit.engines.embedded.facts import CAPABILITIES
from afterwit.engines.port import Engine, Facts, Generate, Step
from afterwit.stages.gateway.app import build_app
from afterwit.stages.gateway.http import InFlight, Listener, bound_socket, send_json
from afterwit.stages.gateway.settings import GatewaySettings
from afterwit.store import AsyncStore
from afterwit.store.sqlite import SqliteStore
from afterwit.wire.model_text.render import Renderer

CHUNKS = 100
"""Chunks of a stream: an engine that is asked for this many tokens gives one at a time."""
CALL = 777
"""Asked for this many tokens, it calls a tool."""
IDLE = 500
"""Asked for this many tokens, it gives one and then no more. Also the number of such streams."""
CONTEXT = 32_768
PIECE = 0xE0
"""Bytes of one of the gateway's chunks, about."""


@dataclass(frozen=True, slots=True)
class Server:
    port: int
    _pipe: Connection

    def cpu_seconds(self) -> float:
        return self._told()[0]

    def peak_bytes(self) -> int:
        """The most memory that it held so far."""
        return self._told()[1]

    def _told(self) -> tuple[float, int]:
        self._pipe.send("?")
        return cast(tuple[float, int], self._pipe.recv())


@contextmanager
def served(variant: str, model: Path, folder: Path) -> Iterator[Server]:
    """`gateway`; `bare`, the least that is a server; `answer`, which knows one answer; or `pieces`, the least
    that is a stream."""
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_run, args=(variant, model, folder, theirs), daemon=True)
    process.start()
    try:
        yield Server(ours.recv(), ours)
    finally:
        process.kill()
        process.join()


def _run(variant: str, model: Path, folder: Path, pipe: Connection) -> None:
    uvloop.run(_serve(variant, model, folder, pipe))


async def _serve(variant: str, model: Path, folder: Path, pipe: Connection) -> None:
    sock, loop = bound_socket("127.0.0.1", 0), asyncio.get_running_loop()
    if variant == "pieces":
        await (await loop.create_server(Pieces, sock=sock)).start_serving()
    else:
        await Listener(_application(variant, Renderer.load(model), folder), sock).start()
    over = asyncio.Event()
    loop.add_reader(pipe.fileno(), _tell, pipe, over)
    pipe.send(sock.getsockname()[1])
    await over.wait()


def _tell(pipe: Connection, over: asyncio.Event) -> None:
    try:
        pipe.recv()
        pipe.send((process_time(), _peak_bytes()))
    except (OSError, EOFError):  # the client is gone
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        over.set()


def _peak_bytes() -> int:
    """`ru_maxrss` is in bytes on macOS, elsewhere in units of 1,024."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _application(variant: str, renderer: Renderer, folder: Path) -> Any:
    engine = QuickEngine(renderer)
    if variant == "bare":
        return Bare(engine, renderer)
    if variant == "answer":
        return Answer()
    folder.mkdir()
    store = AsyncStore(SqliteStore.open(folder / "store.db", fingerprint=None))
    settings = GatewaySettings(max_requests=2 * IDLE)
    return build_app(cast(Engine, engine), renderer, store, settings)


class QuickEngine:
    """Answers at once, and tells by the number of tokens that it is asked for which answer is wanted."""

    version = 0
    fault = None

    def __init__(self, renderer: Renderer) -> None:
        words = renderer.encode("It is in the second file, on line forty two.")
        call = renderer.encode(
            'I read it.<tool_call>\n{"name": "tool_3", "arguments": {"path": "src/a.py"}}\n</tool_call>'
        )
        many = tuple(itertools.islice(itertools.cycle(renderer.encode(" the file")), CHUNKS))
        end = min(renderer.end_ids)
        self._answers = {
            CALL: (_step((*call, end), "stop"),),
            CHUNKS: (*(_step((token,), None) for token in many[:-1]), _step(many[-1:], "length")),
            IDLE: (_step(words, None),),
        }
        self._other = (_step((*words, end), "stop"),)
        self.facts = Facts(
            name="quick",
            model="tiny",
            context_length=CONTEXT,
            vocabulary=renderer.vocabulary,
            end_ids=renderer.end_ids,
            dtype="float32",
            fingerprint="quick",
        )
        self.capabilities = CAPABILITIES

    async def generate(self, request: Generate) -> AsyncIterator[Step]:
        for step in self._answers.get(request.sampling.max_tokens, self._other):
            yield step
        if request.sampling.max_tokens == IDLE:
            await asyncio.Event().wait()


def _step(ids: tuple[int, ...], ended: str | None) -> Step:
    count = len(ids)
    flags = (False,) * count
    return Step(ids=ids, logprobs=(-0.5,) * count, versions=(0,) * count, forced=flags, ended=ended)


class Bare:
    """The least that is a server: it reads, asks the engine and answers."""

    def __init__(self, engine: QuickEngine, renderer: Renderer) -> None:
        self._engine, self._renderer = engine, renderer
        self.in_flight = InFlight(1)

    def error_body(self, path: str, error: RequestError) -> dict[str, Any]:
        return {"error": error.code}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        json.loads((await receive())["body"])
        request = Generate(prompt_ids=(1, 2, 3), sampling=Sampling(max_tokens=64))
        ids = [token async for step in self._engine.generate(request) for token in step.ids]
        await send_json(send, 200, {"text": self._renderer.decode(ids)})


class Answer:
    """An OpenAI-compatible server with one answer to everything."""

    def __init__(self) -> None:
        self.in_flight = InFlight(1)

    def error_body(self, path: str, error: RequestError) -> dict[str, Any]:
        return {"error": error.code}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        message = {"role": "assistant", "content": "It is in the second file, on line forty two."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 250, "completion_tokens": 12, "total_tokens": 262}
        body = {"id": "a", "object": "chat.completion", "created": 1, "model": "tiny"}
        await send_json(send, 200, body | {"choices": [choice], "usage": usage})


class Pieces(asyncio.Protocol):
    """For each request CHUNKS writes of PIECE bytes, however it was sent."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._task = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        self._transport.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(CHUNKS):
            self._transport.write(b"%x\r\n%b\r\n" % (PIECE, b"x" * PIECE))
            await asyncio.sleep(0)
        self._transport.write(b"0\r\n\r\n")
