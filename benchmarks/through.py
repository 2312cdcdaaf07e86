"""How much of a model server's throughput does the gateway keep, which records each response?

32 clients stream through the gateway, or from the server itself, in turn; by the wall clock, since that is
throughput; and what the gateway's processor spends on a token. The server is vLLM on the CPU, where
`make test-engines` installed it: with a random model of Qwen3-0.6B's measures, which is the least that people
host, and with the demo's, which answers as fast as the gateway passes on. Elsewhere, and with `--quick`, a
fake server gives each stream a token every 20 ms, as the row shows.

And with a published model, SmolLM2-135M-Instruct, on vLLM in bfloat16 and on llama.cpp in 4 bits: tokens a
second and the first token, for 1, 8 and 16 clients. Left out: GPUs.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
import uvloop

from afterwit.chat_format.render import Renderer
from afterwit.demo.worlds import world_named
from benchmarks.asked import QWEN3_06B, Asked
from benchmarks.gateway_load import as_http, load, small_body
from benchmarks.gateway_servers import served
from benchmarks.measure import Row, at_least, interleaved, itself, noted, ratios
from benchmarks.models import qwen3
from tests.engines.vllm.servers import full
from tests.servers.install import environment_of
from tests.servers.published import FOLDER, make
from tests.servers.server import Launch, Server

STREAMS, TOKENS, ROUNDS = 32, 100, 4
CLIENTS, ANSWER = (1, 8, 16), 48
"""Of the published model: at once, and tokens of each answer."""
LABELS = {"vllm": "vLLM on the CPU", "llama_cpp": "llama.cpp in 4 bits"}
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
        make()
        with _vllm(FOLDER, folder / "published.log", "bfloat16") as url:
            yield from _published(asked, "vllm", url, folder)
        with _llama_cpp(folder / "llama_cpp.log") as url:
            yield from _published(asked, "llama_cpp", url, folder)


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


def _published(asked: Asked, kind: Literal["vllm", "llama_cpp"], url: str, folder: Path) -> Iterator[Row]:
    """g5: tokens a second and the time to the first token, alone and through the gateway."""
    port, name = int(url.rpartition(":")[2]), str(FOLDER) if kind == "vllm" else "model"
    with served("gateway", FOLDER, folder / f"published-{kind}", url, kind=kind) as ours:
        for tokens, clients in product((ANSWER, 1), CLIENTS):
            variants = {
                "floor": lambda n=clients, t=tokens: seconds(port, bodies(1, name, n, t), n),
                "through": lambda n=clients, t=tokens: seconds(ours.port, bodies(1, "afterwit", n, t), n),
            }
            timed, note = interleaved(variants, runs=asked.runs, clock=itself)
            alone, through = (min(run[each] for run in timed) for each in ("floor", "through"))
            if tokens == ANSWER:
                what, values = "tokens a second", ratios(timed, "floor", "through")
                figures = [f"{clients * tokens / each:.3g} tokens a second" for each in (alone, through)]
            else:
                what, values = "the first token of all", ratios(timed, "through", "floor")
                figures = [f"{each * 1000:.0f} ms" for each in (alone, through)]
            yield Row(
                id="g5",
                what=f"{what} through the gateway, {clients} clients / from the server itself",
                values=values,
                floor=f"{LABELS[kind]}, SmolLM2-135M",
                note=noted(f"{figures[0]} alone, {figures[1]} through", note),
            )


@contextmanager
def _llama_cpp(log: Path) -> Iterator[str]:
    """The URL of a llama-server over the published file, with a slot for each client."""
    flags = ("--parallel", str(max(CLIENTS)), "--ctx-size", str(CONTEXT * max(CLIENTS)), "--threads", "2")
    server = Server(Launch(server="llama_cpp", model=FOLDER, flags=flags), log)
    try:
        server.start()
        yield server.url
    finally:
        server.end()


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


def seconds(port: int, asked: list[dict[str, Any]], clients: int = STREAMS) -> float:
    """Wall seconds until the last of the streams has ended."""
    requests = [as_http(body) for body in asked]
    began = time.perf_counter()
    uvloop.run(load(port, clients, requests))
    return time.perf_counter() - began


def bodies(rounds: int, model: str, clients: int = STREAMS, tokens: int = TOKENS) -> list[dict[str, Any]]:
    """Streams of `tokens` tokens each: none of the ids that end a response is drawn."""
    never = {str(index): -100 for index in Renderer.load(MODEL).end_ids}
    more = {"max_tokens": tokens, "logit_bias": never, "ignore_eos": True}
    return [small_body(stream=True, model=model) | more for _ in range(rounds * clients)]
