"""How long does the embedded engine take for a published model, against `generate()` of transformers?

SmolLM2-135M-Instruct in float32 and in bfloat16: 48 tokens for 1 and for 8 streams after prompts of 64
tokens, and the first token after a prompt of 1,050. The floor is `generate()` alone. Nothing is kept from
request to request.

Left out: GPUs, larger models, HTTP, and servers of other projects (`gateway_servers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM

from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Generate
from afterwit.turn import Sampling
from benchmarks.asked import Asked
from benchmarks.engine import generate, respond
from benchmarks.measure import Row, at_least, interleaved, noted, ratios
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


async def _say(made: EmbeddedEngine, prompts: list[list[int]], tokens: int) -> None:
    """Every request at once."""
    requests = (
        Generate(prompt_ids=tuple(ids), sampling=Sampling(max_tokens=tokens, seed=row, ignore_eos=True))
        for row, ids in enumerate(prompts)
    )
    await asyncio.gather(*(respond(made, request) for request in requests))
