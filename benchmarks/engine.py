"""How long does the embedded engine take for its tokens, and does a long prompt hold up a short request?

A random Qwen3 of about 4 M parameters at temperature 1.

* Against `generate()` of transformers, with prompts of 64 tokens. The floor is the same number of bare decode
  forwards into the slots, without sampling, prompts or streaming.
* A request of 64 tokens with an answer of 32, alone and while a prompt of 20,000 tokens is read: the mean
  over four points of the long prompt. Time is CPU time of the process, whose two threads never work at once.

Left out: GPUs, large models, HTTP.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import Any

import torch
from torch import nn

from afterwit.core.turn import Sampling
from afterwit.engines.embedded.cache import row as kept_row
from afterwit.engines.embedded.cache.batch import Batch
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.forward import decode, prefill
from afterwit.engines.embedded.load import attend_in_slots, pace_of
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Facts, Generate
from benchmarks.asked import Asked, Shape
from benchmarks.measure import Row, at_most, interleaved, noted, ratios
from benchmarks.models import qwen3

SHAPE = Shape(width=256, layers=4, vocabulary=4096)
BATCHES, PROMPT, CONTEXT = (1, 16), 64, 2048
LONG, LONG_CONTEXT, ANSWER = 20_000, 32_768, 32
POINTS = (0.2, 0.4, 0.6, 0.8)
"""Shares of the long prompt that are read when a short request arrives."""


def rows(asked: Asked) -> Iterator[Row]:
    yield from _throughput(asked)
    yield _beside_a_long_prompt(asked)


def _throughput(asked: Asked) -> Iterator[Row]:
    module, peer, tokens = qwen3(SHAPE), qwen3(SHAPE), 16 if asked.quick else 128
    for batch in BATCHES:
        made = _engine(module, batch)
        variants: dict[str, Callable[[], object]] = {
            "floor": _bare(module, batch, tokens),
            "engine": lambda made=made, batch=batch: asyncio.run(_say(made, batch, tokens)),
            "generate": lambda batch=batch: _generate(peer, batch, tokens),
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


def _beside_a_long_prompt(asked: Asked) -> Row:
    module, length = qwen3(SHAPE), LONG // 2 if asked.quick else LONG
    made = _engine(module, 16, context_length=LONG_CONTEXT)
    taken = [asyncio.run(_alone_and_beside(made, module, length)) for _ in range(1 if asked.quick else 3)]
    asyncio.run(made.close())
    return Row(
        id="x2",
        what=f"a short request beside a prompt of {length} tokens / alone",
        values=tuple(beside / alone for alone, beside in taken),
        target=at_most(3),
        floor="the short request alone",
        note=f"alone {1000 * min(alone for alone, _ in taken):.0f} ms of CPU",
    )


async def _alone_and_beside(made: EmbeddedEngine, module: nn.Module, length: int) -> tuple[float, float]:
    """CPU seconds of a short request alone, and while a prompt of `length` is read; means over `POINTS`."""
    alone = [await _short(made) for _ in POINTS]
    read = 0

    def count(layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        nonlocal read
        tokens = named["input_ids"].shape[1]
        read += tokens if tokens != PROMPT else 0  # not the short requests' own prompts

    hook = module.register_forward_pre_hook(count, with_kwargs=True)
    prompt = tuple(7 + place % 4000 for place in range(length))
    long = asyncio.ensure_future(_respond(made, Generate(prompt_ids=prompt, sampling=Sampling(max_tokens=1))))
    beside = []
    for share in POINTS:
        while read < share * length:  # noqa: ASYNC110 - the worker's thread sets no event
            await asyncio.sleep(0.001)
        beside.append(await _short(made))
    assert not long.done(), "the long prompt was read before the last short request"
    await long
    hook.remove()
    return statistics.fmean(alone), statistics.fmean(beside)


async def _short(made: EmbeddedEngine) -> float:
    """CPU seconds that the process takes until a short request has its answer."""
    began = time.process_time()
    (prompt,) = _prompts(1)
    await _respond(made, Generate(prompt_ids=tuple(prompt), sampling=Sampling(max_tokens=ANSWER, seed=0)))
    return time.process_time() - began


async def _respond(made: EmbeddedEngine, request: Generate) -> None:
    async with aclosing(made.generate(request)) as steps:
        async for _ in steps:
            pass


def _engine(module: Any, batch: int, *, context_length: int = CONTEXT) -> EmbeddedEngine:
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
    pace = pace_of(module, module.config, EmbeddedSettings(), torch.device("cpu"))
    return EmbeddedEngine(module, facts, slots=batch, pace=pace, load=lambda _: module)


async def _say(made: EmbeddedEngine, batch: int, tokens: int) -> None:
    """Every request at once."""

    async def one(ids: list[int], seed: int) -> None:
        await _respond(made, Generate(prompt_ids=tuple(ids), sampling=Sampling(max_tokens=tokens, seed=seed)))

    await asyncio.gather(*(one(ids, row) for row, ids in enumerate(_prompts(batch))))
