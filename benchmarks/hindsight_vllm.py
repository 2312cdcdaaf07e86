"""What does it cost to score a rollout on a vLLM server, against the published calls one by one?

The rollout of `hindsight.py`, one teacher a turn as published, on a vLLM server on the CPU with a random
Qwen3. The published call returns the likeliest ids at every position of a prompt; the next call waits for it.
CPU seconds of the server and its client together, then the wall clock. It stops where vLLM is not installed.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import aiohttp
import psutil

from afterwit.engines.kinds import open_engine
from afterwit.engines.port import Engine, Score, Weights
from afterwit.engines.server.settings import VllmSettings
from afterwit.judging.hinted_prompts import Placement
from benchmarks.asked import Asked
from benchmarks.hindsight import HINTS, SHAPE, TOP, TURNS, rollout
from benchmarks.measure import Row, at_least
from tests.fakes.models import tiny_qwen3
from tests.servers.install import environment_of
from tests.servers.server import Launch, Server

CONTEXT = 4096
PATIENCE_S = 600.0
PLACES = (
    ("V1", Placement.LAST_USER, "in the last user message, as published"),
    ("V2", Placement.END, "at the end"),
)
Timed = tuple[float, float]
"""CPU seconds and seconds."""


def rows(asked: Asked) -> Iterator[Row]:
    try:
        environment_of("vllm")
    except FileNotFoundError as error:
        for name, _, where in PLACES:
            yield Row(id=name, what=_what(where), values=(), absent=str(error))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = tiny_qwen3(
            Path(name) / "model",
            hidden_size=SHAPE.width,
            intermediate_size=SHAPE.inner,
            num_attention_heads=SHAPE.heads,
            num_key_value_heads=SHAPE.kv_heads,
            head_dim=SHAPE.head_dim,
            vocab_size=SHAPE.vocabulary,
            max_position_embeddings=CONTEXT,
        )
        flags = ("--enable-scale-out", "--max-model-len", str(CONTEXT))
        server = Server(Launch(server="vllm", model=folder, flags=flags), Path(name) / "vllm.log")
        server.start()
        try:
            yield from asyncio.run(_rows(asked, folder, server.url))
        finally:
            server.end()


async def _rows(asked: Asked, folder: Path, url: str) -> list[Row]:
    engine = await open_engine(folder, VllmSettings(url=url, silence_s=PATIENCE_S), takes_weights=False)
    found = list[Row]()
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=PATIENCE_S)) as session:
        for name, placement, where in PLACES:
            runs = [await _run(engine, session, folder, placement, seed) for seed in range(asked.runs + 1)][
                1:
            ]
            found.append(
                Row(
                    id=name,
                    what=_what(where),
                    values=tuple(theirs[0] / ours[0] for theirs, ours in runs),
                    target=at_least(1.0),
                    peer="the published calls",
                )
            )
            found.append(
                Row(
                    id=name.lower(),
                    what="the same by the wall clock",
                    values=tuple(theirs[1] / ours[1] for theirs, ours in runs),
                    peer="the published calls",
                )
            )
    await engine.close()
    return found


async def _run(
    engine: Engine, session: aiohttp.ClientSession, folder: Path, placement: Placement, seed: int
) -> tuple[Timed, Timed]:
    """The published calls, then ours; the first run warms up. No run finds another's rollout in the cache."""
    given = rollout(placement, SHAPE.vocabulary, seed=seed)[::HINTS]
    theirs = await _timed(lambda: _published(session, folder, given))
    ours = await _timed(lambda: engine.score(given, top=TOP, weights=Weights.LIVE))
    return theirs, ours


async def _published(session: aiohttp.ClientSession, folder: Path, given: Sequence[Score]) -> None:
    for row in given:
        asked = {
            "model": str(folder),
            "prompt": [*row.prompt_ids, *row.response_ids],
            "prompt_logprobs": TOP,
            "max_tokens": 1,
        }
        async with session.post("/v1/completions", json=asked) as answer:
            answer.raise_for_status()
            told = (await answer.json())["choices"][0]["prompt_logprobs"]
        if len(told) != len(asked["prompt"]):
            raise ValueError(f"{len(asked['prompt'])} ids were sent, and {len(told)} rows came")


async def _timed(work: Callable[[], Awaitable[object]]) -> Timed:
    spent, began = _cpu_seconds(), time.perf_counter()
    await work()
    return _cpu_seconds() - spent, time.perf_counter() - began


def _cpu_seconds() -> float:
    """Of this process and all that it started."""
    me = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in (me, *me.children(recursive=True)))


def _what(where: str) -> str:
    return f"{TURNS} turns on vLLM, the hint {where}: the published calls / ours"
