"""How long does the embedded engine take for its tokens, against `generate()` of transformers?

A random Qwen3 of about 4 M parameters, temperature 1, prompts of 64 tokens. The floor is as many bare decode
forwards into the slots, without sampling, prompts or streaming. Left out: GPUs, large models, HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Any

import torch
from torch import nn

from afterwit.core.turn import Sampling
from afterwit.engines.embedded.cache import SlotCache
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.forward import decode, prefill
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Facts, Generate
from benchmarks.asked import Asked, Shape
from benchmarks.measure import Row, interleaved, noted, ratios
from benchmarks.models import qwen3

SHAPE = Shape(width=256, layers=4, vocabulary=4096)
BATCHES, PROMPT, CONTEXT = (1, 16), 64, 2048


def rows(asked: Asked) -> Iterator[Row]:
    module, tokens = qwen3(SHAPE), 16 if asked.quick else 128
    for batch in BATCHES:
        made = _engine(module, batch)
        variants: dict[str, Callable[[], object]] = {
            "floor": _bare(module, batch, tokens),
            "engine": lambda made=made, batch=batch: asyncio.run(_say(made, batch, tokens)),
            "generate": lambda batch=batch: _generate(module, batch, tokens),
        }
        timed, note = interleaved(variants, runs=asked.runs)
        asyncio.run(made.close())
        rate = batch * tokens / min(run["engine"] for run in timed)
        yield Row(
            id="x1",
            what=f"generate()'s time / the engine's, {batch} at a time",
            values=ratios(timed, "generate", "engine"),
            peer="generate()",
            note=noted(f"{rate:.0f} tokens a CPU second", note),
        )
        yield Row(
            id="x1",
            what=f"the engine's time / bare decode forwards, {batch} at a time",
            values=ratios(timed, "engine"),
            floor="bare decode forwards",
        )


def _prompts(batch: int) -> list[list[int]]:
    return [[(31 * place + 7 * row) % 4000 + 1 for place in range(PROMPT)] for row in range(batch)]


def _bare(module: nn.Module, batch: int, tokens: int) -> Callable[[], None]:
    """The decode forwards alone, over prompts that are there already."""
    cache = SlotCache(slots=batch, context_length=CONTEXT)
    with torch.inference_mode():
        for row, ids in enumerate(_prompts(batch)):
            prefill(module, cache, row, ids, 0)

    @torch.inference_mode()
    def forwards() -> None:
        for step in range(tokens):
            decode(module, cache, 0, [1] * batch, [PROMPT + step] * batch)

    return forwards


def _generate(module: Any, batch: int, tokens: int) -> None:
    ids = torch.tensor(_prompts(batch))
    module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        top_k=0,
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        pad_token_id=0,
    )


def _engine(module: nn.Module, batch: int) -> EmbeddedEngine:
    facts = Facts(
        name="embedded",
        model="benchmark",
        context_length=CONTEXT,
        vocabulary=SHAPE.vocabulary,
        end_ids=frozenset(),
        dtype="float32",
        fingerprint="benchmark",
    )
    return EmbeddedEngine(module, facts, EmbeddedSettings(slots=batch), load=lambda _: module)


async def _say(made: EmbeddedEngine, batch: int, tokens: int) -> None:
    """One stream a request."""

    async def one(ids: list[int], seed: int) -> None:
        request = Generate(prompt_ids=tuple(ids), sampling=Sampling(max_tokens=tokens, seed=seed))
        async with aclosing(made.generate(request)) as steps:
            async for _ in steps:
                pass

    await asyncio.gather(*(one(ids, row) for row, ids in enumerate(_prompts(batch))))
