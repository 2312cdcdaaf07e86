"""How long does the embedded engine take for a published model, against `generate()` of transformers?

SmolLM2-135M-Instruct in float32 and in bfloat16: 48 tokens for 1 and for 8 streams after prompts of 64
tokens, and the first token after a prompt of 1,050. The floor is `generate()` alone. Nothing is kept from
request to request. And how long does a person wait for the first token while four answers are practised?

Left out: GPUs, larger models, HTTP, and servers of other projects (`gateway_servers`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any, Literal, cast

import torch
from transformers import AutoModelForCausalLM

from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Generate, Step
from afterwit.turn import Sampling
from benchmarks.asked import Asked
from benchmarks.engine import generate, respond
from benchmarks.measure import Row, at_least, at_most, interleaved, noted, ratios
from tests.servers.published import FOLDER, make

CASES = ((1, 64, 48), (8, 64, 48), (1, 1050, 1))
"""Streams, tokens of each prompt, tokens of each answer."""


def rows(asked: Asked) -> Iterator[Row]:
    make()
    torch.set_num_threads(1)
    dtypes: tuple[Literal["float32", "bfloat16"], ...] = ("float32", "bfloat16")
    for dtype in dtypes:
        peer = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=getattr(torch, dtype)).eval()
        made = EmbeddedEngine.load(FOLDER, EmbeddedSettings(dtype=dtype, device="cpu", prefix_cache_gib=0))
        for streams, prompt, tokens in CASES[:1] if asked.quick else CASES:
            yield _row(asked, made, peer, dtype, streams, prompt, tokens)
        yield _next_to_practice(asked, made, dtype)
        asyncio.run(made.close())


def _row(
    asked: Asked, made: EmbeddedEngine, peer: Any, dtype: str, streams: int, prompt: int, tokens: int
) -> Row:
    prompts = [[(31 * place + 7 * row) % 40_000 + 100 for place in range(prompt)] for row in range(streams)]
    variants: dict[str, Callable[[], object]] = {
        "floor": lambda: generate(peer, prompts, tokens),
        "engine": lambda: asyncio.run(_say(made, prompts, tokens)),
    }
    timed, note = interleaved(variants, runs=asked.runs)
    best = min(run["engine"] for run in timed)
    case = f"{streams} at a time" if tokens > 1 else f"first token after {prompt}"
    return Row(
        id="X5",
        what=f"generate()'s time / the engine's, SmolLM2, {dtype}, {case}",
        values=ratios(timed, "floor", "engine"),
        target=at_least(1.0),
        peer="generate()",
        note=noted(f"{streams * tokens / best:.3g} tokens a CPU second", note),
    )


def _next_to_practice(asked: Asked, made: EmbeddedEngine, dtype: str) -> Row:
    """The time to the first token, on the wall's clock, with four background answers under way."""
    variants: dict[str, Callable[[], object]] = {
        "floor": lambda: asyncio.run(_first_token(made, answers=0)),
        "practised": lambda: asyncio.run(_first_token(made, answers=4)),
    }
    timed, note = interleaved(variants, runs=asked.runs, clock=lambda work: cast(float, work()))
    return Row(
        id="X6",
        what=f"first token after 64 tokens, next to four practised answers / alone, SmolLM2, {dtype}",
        values=ratios(timed, "practised", "floor"),
        target=at_most(1.2),
        floor="the engine without practice",
        why="a step of the practised answers that is under way ends first",
        note=noted(f"{min(run['floor'] for run in timed) * 1000:.0f} ms alone", note),
    )


async def _first_token(made: EmbeddedEngine, *, answers: int) -> float:
    """Seconds from a request to its first token, once the answers in the background have begun theirs."""

    def request(row: int, tokens: int, background: bool) -> Generate:
        prompt = tuple((31 * place + 7 * row) % 40_000 + 100 for place in range(64))
        sampling = Sampling(max_tokens=tokens, seed=row, ignore_eos=True)
        return Generate(prompt_ids=prompt, sampling=sampling, background=background)

    practised = [made.generate(request(row, 400, True)) for row in range(answers)]
    for steps in practised:
        await anext(steps)

    async def go_on(steps: AsyncGenerator[Step, None]) -> None:
        async for _ in steps:
            pass

    going = [asyncio.create_task(go_on(steps)) for steps in practised]
    await asyncio.sleep(0.2)
    began = time.perf_counter()
    async with aclosing(made.generate(request(answers, 1, False))) as steps:
        await anext(steps)
        waited = time.perf_counter() - began
    for task in going:
        task.cancel()
    await asyncio.gather(*going, return_exceptions=True)
    return waited


async def _say(made: EmbeddedEngine, prompts: list[list[int]], tokens: int) -> None:
    """Every request at once."""
    requests = (
        Generate(prompt_ids=tuple(ids), sampling=Sampling(max_tokens=tokens, seed=row, ignore_eos=True))
        for row, ids in enumerate(prompts)
    )
    await asyncio.gather(*(respond(made, request) for request in requests))
