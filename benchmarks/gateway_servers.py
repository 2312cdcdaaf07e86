"""The gateway and what it is compared with, each in a process of its own.

Each reports its port, and its CPU time and memory so far, through a pipe.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from time import process_time
from typing import Any, Literal, cast

import uvloop

from afterwit.chat_format.render import Renderer
from afterwit.engines.kinds import open_engine
from afterwit.engines.port import Engine
from afterwit.engines.server.settings import LlamaCppSettings, VllmSettings
from afterwit.gateway.app import GatewayApp
from afterwit.gateway.context import Gateway
from afterwit.gateway.http_server import Listener, bound_socket
from afterwit.gateway.settings import GatewaySettings
from afterwit.running.serve import spare_what_stays
from afterwit.store import AsyncStore
from afterwit.store.sqlite import SqliteStore
from benchmarks.one_device import start_one_device
from benchmarks.paced_server import SLOTS, start_paced
from benchmarks.plain_servers import Answer, Bare, Pieces
from benchmarks.quick_engine import IDLE, QuickEngine


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
def served(
    variant: str, model: Path, folder: Path, *urls: str, kind: Literal["vllm", "llama_cpp"] = "vllm"
) -> Iterator[Server]:
    """`gateway`, over an engine that costs nothing or the servers of a kind at URLs; `bare`, the least that
    is a server; `answer`, which knows one answer; `pieces`, the least that is a stream; or `paced`, in place
    of vLLM; `full`, the same with few places; `one_device`, in place of vLLM too: streams and prompts share a
    device."""
    folder.mkdir()
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_run, args=(variant, model, folder, urls, kind, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Server(_port(variant, ours), ours)
    finally:
        process.kill()
        process.join()


def _port(variant: str, pipe: Connection) -> int:
    try:
        return cast(int, pipe.recv())
    except EOFError as error:
        raise SystemExit(f"the server {variant!r} ended before it was ready; its words are above") from error


def _run(variant: str, model: Path, folder: Path, urls: tuple[str, ...], kind: str, pipe: Connection) -> None:
    uvloop.run(_serve(variant, model, folder, urls, kind, pipe))


async def _serve(
    variant: str, model: Path, folder: Path, urls: tuple[str, ...], kind: str, pipe: Connection
) -> None:
    sock, loop = bound_socket("127.0.0.1", 0), asyncio.get_running_loop()
    if variant == "pieces":
        await (await loop.create_server(Pieces, sock=sock)).start_serving()
    elif variant in ("paced", "full"):
        await start_paced(model, sock, SLOTS if variant == "full" else None)
    elif variant == "one_device":
        await start_one_device(model, sock)
    elif variant == "gateway":
        await Listener(await _gateway(model, folder, urls, kind), sock).start()
    else:
        await Listener(_plain(variant, Renderer.load(model)), sock).start()
    spare_what_stays()
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
    """Linux's own mark: there `ru_maxrss`, which macOS gives in bytes, begins with the parent's peak."""
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    marks = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(marks["VmHWM"].removesuffix("kB")) * 1024


def _plain(variant: str, renderer: Renderer) -> Any:
    return Bare(QuickEngine(renderer), renderer) if variant == "bare" else Answer()


async def _gateway(model: Path, folder: Path, urls: tuple[str, ...], kind: str) -> Any:
    renderer = Renderer.load(model)
    engine: Any = QuickEngine(renderer)
    if urls:
        server = VllmSettings(url=urls) if kind == "vllm" else LlamaCppSettings(url=urls)
        engine = await open_engine(model, server, takes_weights=False)
    store = AsyncStore(SqliteStore.open(folder / "store.db", fingerprint=None))
    settings = GatewaySettings(max_requests=2 * IDLE)
    gateway = Gateway(engine=cast(Engine, engine), renderer=renderer, store=store, settings=settings)
    return GatewayApp(gateway)
