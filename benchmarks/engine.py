"""How many tokens a CPU second does the embedded engine say, against `generate()` of transformers?

A random Qwen3 of about 4 M parameters, one torch thread, temperature 1, prompts of 64 tokens. The floor is as
many bare decode forwards into the slots, without sampling, prompts or streaming. Variants take turns within
a run; process CPU time is counted; a run whose two floor timings differ by over a tenth is thrown away.
Left out: GPUs, large models, HTTP.
`python benchmarks/engine.py [--tokens N] [--runs N] [--out FILE]`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM, Qwen3Config

from afterwit.core.turn import Basis, Sampling
from afterwit.engines.embedded.cache import SlotCache
from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.forward import decode, prefill
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Facts, Generate

BATCHES = (1, 16)
PROMPT = 64
TOLERANCE = 0.10
PROTOTYPE = {"engine/generate, batch 1": 680 / 412, "engine/generate, batch 16": 2500 / 2000}
"""What a throw-away engine reached on two other cores: the ratio to beat."""


def model() -> nn.Module:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=640,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    made: nn.Module = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    return made


def prompts(batch: int) -> list[list[int]]:
    return [[(31 * place + 7 * row) % 4000 + 1 for place in range(PROMPT)] for row in range(batch)]


@torch.inference_mode()
def floor(module: nn.Module, batch: int, tokens: int) -> float:
    """CPU seconds of the decode forwards alone."""
    cache = SlotCache(slots=batch, context_length=2048)
    for row, ids in enumerate(prompts(batch)):
        prefill(module, cache, row, ids, 0)
    began = time.process_time()
    for step in range(tokens):
        decode(module, cache, 0, [1] * batch, [PROMPT + step] * batch)
    return time.process_time() - began


def generate(module: Any, batch: int, tokens: int) -> float:
    """CPU seconds of transformers' own loop."""
    ids = torch.tensor(prompts(batch))
    began = time.process_time()
    module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=True,
        top_k=0,
        max_new_tokens=tokens,
        min_new_tokens=tokens,
        pad_token_id=0,
    )
    return time.process_time() - began


def engine(module: nn.Module, batch: int, tokens: int) -> float:
    """CPU seconds of the engine with its thread, its event loop and one stream a request."""
    facts = Facts(
        name="embedded",
        model="benchmark",
        context_length=2048,
        vocabulary=4096,
        end_ids=frozenset(),
        basis=Basis.PROCESSED,
        dtype="float32",
        fingerprint="benchmark",
    )

    async def one(made: EmbeddedEngine, ids: list[int], seed: int) -> None:
        request = Generate(prompt_ids=tuple(ids), sampling=Sampling(max_tokens=tokens, seed=seed))
        async with aclosing(made.generate(request)) as steps:
            async for _ in steps:
                pass

    async def run() -> float:
        made = EmbeddedEngine(module, facts, EmbeddedSettings(slots=batch), load=lambda _: module)
        began = time.process_time()
        await asyncio.gather(*(one(made, ids, row) for row, ids in enumerate(prompts(batch))))
        spent = time.process_time() - began
        await made.close()
        return spent

    return asyncio.run(run())


VARIANTS: dict[str, Callable[[Any, int, int], float]] = {
    "floor": floor,
    "engine": engine,
    "generate": generate,
    "floor_again": floor,
}


def one_run(module: nn.Module, batch: int, tokens: int) -> dict[str, float] | None:
    """CPU seconds of each variant; None where the machine was not quiet."""
    spent = {name: measure(module, batch, tokens) for name, measure in VARIANTS.items()}
    first, second = spent["floor"], spent.pop("floor_again")
    return None if abs(first - second) > TOLERANCE * max(first, second) else spent


def summary(runs: list[dict[str, float]], said: int) -> dict[str, Any]:
    """Tokens a CPU second and times the floor: minimum, median, maximum."""
    rates = {name: sorted(said / run[name] for run in runs) for name in runs[0]}
    ratio = sorted(run["generate"] / run["engine"] for run in runs)
    above = sorted(run["engine"] / run["floor"] for run in runs)
    columns = {**{f"{name}, tokens/s": each for name, each in rates.items()}}
    columns |= {"engine/generate": ratio, "engine's time/floor": above}
    return {name: [each[0], statistics.median(each), each[-1]] for name, each in columns.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    module = model()
    one_run(module, 1, 8)  # first calls allocate and compile
    tried = {batch: [one_run(module, batch, asked.tokens) for _ in range(asked.runs)] for batch in BATCHES}
    runs = {batch: [run for run in each if run is not None] for batch, each in tried.items()}
    if not all(runs.values()):
        raise SystemExit("the machine was never quiet: the floor's two timings differed by more than a tenth")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    result = {
        "question": "tokens per CPU second, engine against transformers' generate(): min, median, max",
        "commit": commit.stdout.strip(),
        "machine": {
            "platform": platform.platform(),
            "cpu": platform.processor(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "parameters": sum(weight.numel() for weight in module.parameters()),
        "tokens": asked.tokens,
        "runs": {batch: len(each) for batch, each in runs.items()},
        "runs_rejected": {batch: len(tried[batch]) - len(runs[batch]) for batch in BATCHES},
        "target": PROTOTYPE,
        "result": {f"batch {batch}": summary(each, batch * asked.tokens) for batch, each in runs.items()},
    }
    text = json.dumps(result, indent=2)
    print(text)
    if asked.out is not None:
        asked.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
