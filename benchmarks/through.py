"""How much of a model server's throughput does the gateway keep, which records each response?

32 clients stream through the gateway, or from the server itself, in turn; by the wall clock, since throughput
is asked for; and what the gateway's processor spends on a token. The server is vLLM on the CPU, where
`make test-engines` installed it: with a random model of Qwen3-0.6B's measures, which is the least that people
host, and with the demo's, which answers as fast as the gateway passes on. Elsewhere, and with `--quick`, a
server stands in for it that gives each stream a token every 20 ms, as the row shows. Left out: GPUs.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import uvloop

from afterwit.chat_format.render import Renderer
from afterwit.demo.worlds import world_named
from benchmarks.asked import QWEN3_06B, Asked
from benchmarks.gateway_load import as_http, load, small_body
from benchmarks.gateway_servers import served
from benchmarks.measure import Row, at_least, interleaved, itself, noted
from benchmarks.models import qwen3
from tests.engines.vllm.servers import full
from tests.servers.install import environment_of
from tests.servers.server import Server

STREAMS, TOKENS, ROUNDS = 32, 100, 4
MODEL = world_named("chat").folder / "model"
CONTEXT = 1024
"""Of that model."""
STANDS_IN = "a server that stands in for vLLM, which `make test-engines` installs"
LARGE = "vLLM on the CPU, a random model of Qwen3-0.6B's measures"
CACHE_GB = "2"
"""For the keys and values of all streams."""


def rows(asked: Asked) -> Iterator[Row]:
    """G4 and, with the demo's model, g4."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        if asked.quick or not _installed():
            paced = stack.enter_context(served("paced", MODEL, folder / "paced"))
            yield from _through(asked, "G4", STANDS_IN, f"http://127.0.0.1:{paced.port}", MODEL, folder)
            return
        large = _large(folder / "model")
        with _vllm(large, folder / "large.log", "bfloat16") as url:
            yield from _through(replace(asked, quick=True), "G4", LARGE, url, large, folder)
        with _vllm(MODEL, folder / "small.log", "float32") as url:
            yield from _through(asked, "g4", "vLLM on the CPU, the demo's model", url, MODEL, folder)


def _installed() -> bool:
    try:
        environment_of("vllm")
    except FileNotFoundError:
        return False
    return True


def _through(asked: Asked, id_: str, said: str, url: str, model: Path, folder: Path) -> Iterator[Row]:
    rounds, spent = 1 if asked.quick else ROUNDS, list[float]()
    port = int(url.rpartition(":")[2])
    with served("gateway", model, folder / f"gateway-{id_}", url) as ours:

        def through() -> float:
            before = ours.cpu_seconds()
            taken = seconds(ours.port, bodies(rounds, "afterwit"))
            spent.append((ours.cpu_seconds() - before) / (rounds * STREAMS * TOKENS))
            return taken

        variants = {"floor": lambda: seconds(port, bodies(rounds, str(model))), "through": through}
        timed, note = interleaved(variants, runs=asked.runs, clock=itself)
    rate = rounds * STREAMS * TOKENS / min(run["floor"] for run in timed)
    yield Row(
        id=id_,
        what=f"tokens a second through the gateway, {STREAMS} streams / from the server itself",
        values=tuple(run["floor"] / run["through"] for run in timed),
        target=at_least(0.95) if id_ == "G4" else None,
        floor=said,
        note=noted(f"{rate:.0f} tokens a second", note),
    )
    yield Row(
        id="g4",
        what="microseconds of the gateway's CPU for a token on its way through",
        values=tuple(each * 1e6 for each in spent[-len(timed) :]),
        floor=said,
    )


def _large(folder: Path) -> Path:
    """A model folder: random weights, and the demo's tokenizer."""
    shutil.copytree(MODEL, folder)
    vocabulary = json.loads((MODEL / "config.json").read_text())["vocab_size"]
    shape = replace(QWEN3_06B, vocabulary=vocabulary)
    qwen3(shape, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


@contextmanager
def _vllm(model: Path, log: Path, dtype: str) -> Iterator[str]:
    """The URL of a running server."""
    launch = full(model)
    more = ("--max-model-len", str(CONTEXT), "--dtype", dtype)
    environment = (*launch.environment, ("VLLM_CPU_KVCACHE_SPACE", CACHE_GB))
    server = Server(replace(launch, flags=(*launch.flags, *more), environment=environment), log)
    try:
        server.start()
        yield server.url
    finally:
        server.end()


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
