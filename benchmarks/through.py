"""How much of a model server's throughput is left behind the gateway, which records each of its responses?

32 clients stream through the gateway, or from the server itself, in turn; by the wall clock, since throughput
is asked for; and what the gateway's processor spends on a token. The server is
vLLM on the CPU with the demo's chat model, where `make test-engines` installed it. Elsewhere one stands in
for it that gives each stream a token every 20 ms, and the row says so. Left out: GPUs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from afterwit.apps.demo.worlds import world_named
from afterwit.wire.model_text.render import Renderer
from benchmarks.asked import Asked
from benchmarks.gateway_load import as_http, load, small_body
from benchmarks.gateway_servers import served
from benchmarks.measure import Row, at_least, interleaved, itself, noted
from tests.engines.vllm.servers import full
from tests.servers.install import environment_of
from tests.servers.server import Server

STREAMS, TOKENS, ROUNDS = 32, 100, 4
MODEL = world_named("chat").folder / "model"
CONTEXT = 1024
"""Of that model."""
STANDS_IN = "a server that stands in for vLLM, which is not installed: `make test-engines` does it"


def rows(asked: Asked) -> Iterator[Row]:
    """G4."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        url, said = _server(stack, folder)
        ours = stack.enter_context(served("gateway", MODEL, folder / "gateway", url))
        port, rounds = int(url.rpartition(":")[2]), 1 if asked.quick else ROUNDS
        spent: list[float] = []

        def through() -> float:
            before = ours.cpu_seconds()
            taken = seconds(ours.port, bodies(rounds, "afterwit"))
            spent.append((ours.cpu_seconds() - before) / (rounds * STREAMS * TOKENS))
            return taken

        variants = {
            "floor": lambda: seconds(port, bodies(rounds, str(MODEL))),
            "through": through,
        }
        timed, note = interleaved(variants, runs=asked.runs, clock=itself)
    rate = rounds * STREAMS * TOKENS / min(run["floor"] for run in timed)
    yield Row(
        id="G4",
        what=f"tokens a second through the gateway, {STREAMS} streams / from the server itself",
        values=tuple(run["floor"] / run["through"] for run in timed),
        target=at_least(0.95),
        floor=said,
        note=noted(f"{rate:.0f} tokens a second", note),
    )
    yield Row(
        id="g4",
        what="microseconds of the gateway's CPU for a token on its way through",
        values=tuple(each * 1e6 for each in spent[1:]),
    )


def _server(stack: ExitStack, folder: Path) -> tuple[str, str]:
    """The URL of a running server, and what it is."""
    try:
        environment_of("vllm")
    except FileNotFoundError:
        paced = stack.enter_context(served("paced", MODEL, folder / "paced"))
        return f"http://127.0.0.1:{paced.port}", STANDS_IN
    launch = full(MODEL)
    launch = replace(launch, flags=(*launch.flags, "--max-model-len", str(CONTEXT)))
    server = Server(launch, folder / "vllm.log")
    stack.callback(server.end)
    server.start()
    return server.url, "vLLM on the CPU"


def seconds(port: int, asked: list[dict[str, Any]]) -> float:
    """Wall seconds until the last of the streams has ended."""
    requests = [as_http(body) for body in asked]
    began = time.perf_counter()
    uvloop.run(load(port, STREAMS, requests))
    return time.perf_counter() - began


def bodies(rounds: int, model: str) -> list[dict[str, Any]]:
    """Streams of TOKENS tokens each: none of the ids that end a response is drawn."""
    never = {str(index): -100 for index in Renderer.load(MODEL).end_ids}
    more = {"max_tokens": TOKENS, "logit_bias": never, "ignore_eos": True}
    return [small_body(stream=True, model=model) | more for _ in range(rounds * STREAMS)]
