"""How long does the embedded engine take for its tokens, against `generate()` of transformers?

A random Qwen3 of about 4 M parameters at temperature 1, prompts of 64 tokens. The floor is the same number of
bare decode forwards into the batch, without sampling, prompts or streaming. Nothing is kept from request to
request.

Left out: GPUs, large models, HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Any

import torch
from torch import nn

from afterwit.engines.embedded import cache as kept_row
from afterwit.engines.embedded.cache import Batch
from afterwit.engines.embedded.engine import EmbeddedEngine, attend_in_slots
from afterwit.engines.embedded.fitness import prefill_budget
from afterwit.engines.embedded.forward import decode, prefill
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Facts, Generate
from afterwit.turn import Sampling
from benchmarks.asked import Asked, Shape
from benchmarks.measure import Row, at_least, interleaved, noted, ratios
from benchmarks.models import qwen3

SHAPE = Shape(width=256, layers=4, vocabulary=4096)
BATCHES, PROMPT, CONTEXT = (1, 16), 64, 2048
TARGETS = {1: 1.3, 16: 1.25}


def rows(asked: Asked) -> Iterator[Row]:
    module, peer, tokens = qwen3(SHAPE), qwen3(SHAPE), 16 if asked.quick else 128
    for batch in BATCHES:
        made = engine_of(module, batch)
        variants: dict[str, Callable[[], object]] = {
            "floor": _bare(module, batch, tokens),
            "engine": lambda made=made, batch=batch: asyncio.run(_say(made, batch, tokens)),
            "generate": lambda batch=batch: generate(peer, _prompts(batch), tokens),
        }
        timed, note = interleaved(variants, runs=asked.runs)
        asyncio.run(made.close())
        rate = batch * tokens / min(run["engine"] for run in timed)
        yield Row(
            id="X4",
            what=f"generate()'s time / the engine's, {batch} at a time",
            values=ratios(timed, "generate", "engine"),
            target=at_least(TARGETS[batch]),
            peer="generate()",
            note=noted(f"{rate:.0f} tokens a CPU second", note),
        )
        yield Row(
            id="x4",
            what=f"the engine's time / bare decode forwards, {batch} at a time",
            values=ratios(timed, "engine"),
            floor="bare decode forwards",
        )


def _prompts(batch: int) -> list[list[int]]:
    return [[(31 * place + 7 * row) % 4000 + 1 for place in range(PROMPT)] for row in range(batch)]


def _bare(module: nn.Module, batch: int, tokens: int) -> Callable[[], None]:
    """The decode forwards alone, over prompts that are there already."""
    cache = Batch(slots=batch, context_length=CONTEXT)
    with torch.inference_mode():
        for place, ids in enumerate(_prompts(batch)):
            row = kept_row.Row(context_length=CONTEXT)
            prefill(module, row, ids)
            cache.put(place, row.layers_between(0, PROMPT))

    @torch.inference_mode()
    def forwards() -> None:
        for step in range(tokens):
            decode(module, cache, 0, [1] * batch, [PROMPT + step] * batch)

    return forwards


def generate(module: Any, prompts: list[list[int]], tokens: int) -> None:
    """Generate `tokens` tokens after each prompt with transformers."""
    ids = torch.tensor(prompts)
    module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        top_k=0,
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        pad_token_id=0,
    )


async def respond(made: EmbeddedEngine, request: Generate) -> None:
    async with aclosing(made.generate(request)) as steps:
        async for _ in steps:
            pass


def engine_of(
    module: Any, slots: int, *, context_length: int = CONTEXT, cache_bytes: int = 0
) -> EmbeddedEngine:
    facts = Facts(
        name="embedded",
        model="benchmark",
        context_length=context_length,
        vocabulary=SHAPE.vocabulary,
        end_ids=frozenset(),
        dtype="float32",
        fingerprint="benchmark",
    )
    attend_in_slots(module)
    budget = prefill_budget(module, module.config, EmbeddedSettings(), torch.device("cpu"))
    return EmbeddedEngine(
        module,
        facts,
        load=lambda folder: module,
        load_own=lambda folder, rows: None,
        slots=slots,
        budget=budget,
        cache_bytes=cache_bytes,
    )


async def _say(made: EmbeddedEngine, batch: int, tokens: int) -> None:
    """Every request at once."""

    async def one(ids: list[int], seed: int) -> None:
        await respond(made, Generate(prompt_ids=tuple(ids), sampling=Sampling(max_tokens=tokens, seed=seed)))

    await asyncio.gather(*(one(ids, row) for row, ids in enumerate(_prompts(batch))))
