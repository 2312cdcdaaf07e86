"""What does an adapter for each person cost, in memory and time, against one that all share?

A random Qwen3 of 76 M parameters without a vocabulary to speak of, adapters of rank 16 on every linear layer
but the head, prompts of 64 tokens. The floor is one adapter that everybody shares, merged into the weights.
Left out: GPUs, HTTP, disks that are slower than the page cache.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter

import torch

from afterwit.chat_format.render import Renderer
from afterwit.checkpoints.versions import Versions
from afterwit.engines.embedded.engine import load_module, load_own
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Generate
from afterwit.learning.settings import LearnerSettings
from afterwit.learning.trainer import Trainer
from afterwit.objective.settings import ObjectiveSettings
from afterwit.turn import SHARED, Sampling
from afterwit.weights.weights import RowAdapters
from benchmarks.asked import Asked
from benchmarks.lora import QUICK, RANK, SHAPE
from benchmarks.measure import Row, interleaved, noted, ratios
from experiments.simulation.lockstep import BatchEngine
from tests.fakes.adapters import noise
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import tiny_qwen3

PEOPLE, PROMPT = 16, 64


def rows(asked: Asked) -> Iterator[Row]:
    shape = QUICK if asked.quick else SHAPE
    with tempfile.TemporaryDirectory() as folder:
        base = tiny_qwen3(Path(folder) / "base", **shape)
        own = [
            noise(Path(folder) / str(seed), base, seed=seed, rank=RANK, alpha=32.0) for seed in range(PEOPLE)
        ]
        yield _memory(base, own[0])
        yield from asyncio.run(_serving(base, own, asked))
        yield _learning(base, Path(folder) / "home", asked)


def _memory(base: Path, own: Path) -> Row:
    module = load_module(base, torch.device("cpu"), torch.float32)
    factors = load_own(own, RowAdapters(module), base)
    assert factors is not None
    whole = sum(weight.nbytes for weight in module.parameters())
    each = sum(pair.a_RI.nbytes + pair.b_OR.nbytes for pair in factors.pairs.values())
    return Row(
        id="p1",
        what="memory of 100 people's adapters / that of the model",
        values=(100 * each / whole,),
        floor="the model, fp32",
        note=f"{each / 2**20:.1f} MiB each, the model {whole / 2**20:.0f} MiB",
    )


async def _serving(base: Path, own: Sequence[Path], asked: Asked) -> list[Row]:
    engine = await asyncio.to_thread(
        BatchEngine.load, base, EmbeddedSettings(slots=PEOPLE, prefix_cache_gib=0.0)
    )
    tokens, loop = 16 if asked.quick else 32, asyncio.get_running_loop()
    try:
        await _put(engine, own[0], SHARED, 1)
        loads = [await _put(engine, folder, f"key:{at}", 2 + at) for at, folder in enumerate(own)]

        def saying(adapters: Sequence[str]) -> Callable[[], None]:
            def run() -> None:
                asyncio.run_coroutine_threadsafe(_say(engine, adapters, tokens), loop).result()

            return run

        found = []
        for many in (1, PEOPLE):
            variants = {
                "floor": saying([SHARED] * many),
                "one": saying(["key:0"] * many),
                "own": saying([f"key:{at}" for at in range(many)]),
            }
            timed, note = await asyncio.to_thread(interleaved, variants, runs=asked.runs)
            rate = many * tokens / min(run["own"] for run in timed)
            found += [
                Row(
                    id="p2",
                    what=f"time of {many} at a time, {how} / the shared one's",
                    values=ratios(timed, name),
                    floor="one adapter for all, merged",
                    note=noted(f"{rate:.0f} tokens a CPU second" if name == "own" else "", note),
                )
                for name, how in (("one", "one adapter beside the weights"), ("own", "each their own"))
                if many > 1 or name == "own"
            ]
        found.append(
            Row(
                id="p3",
                what="seconds until an adapter that is asked for is loaded and probed",
                values=tuple(loads[1:]),
            )
        )
    finally:
        await engine.close()
    return found


async def _put(engine: BatchEngine, folder: Path, adapter: str, version: int) -> float:
    began = perf_counter()
    await engine.stage(version, folder, adapter=adapter)
    await engine.probe(tuple(range(3, 67)))
    await engine.promote()
    return perf_counter() - began


async def _say(engine: BatchEngine, adapters: Sequence[str], tokens: int) -> None:
    def request(at: int, adapter: str) -> Generate:
        ids = tuple((31 * place + 7 * at) % 390 + 1 for place in range(PROMPT))
        sampling = Sampling(max_tokens=tokens, seed=at, ignore_eos=True)
        return Generate(prompt_ids=ids, sampling=sampling, adapter=adapter)

    await engine.generate_together([request(at, adapter) for at, adapter in enumerate(adapters)])


def _learning(base: Path, home: Path, asked: Asked) -> Row:
    """Updates of one adapter, against as many that each turn to another one."""
    renderer = Renderer.load(base)
    settings = LearnerSettings(device="cpu", lora_rank=RANK, measure_effects=False)
    versions = Versions(root=home, base=base)
    trainer = Trainer(versions, renderer, settings=settings, objective=ObjectiveSettings())
    trainer.begin(now=0.0)
    samples = [a_sample(renderer, number) for number in range(4)]

    def updates(adapters: Sequence[str]) -> None:
        for adapter in adapters:
            trainer.turn_to(adapter)
            items, _ = trainer.build(samples)
            trainer.train(items, [], now=1.0, progress=lambda phase: None)

    count = 2
    variants = {
        "floor": lambda: updates(["key:0"] * count),
        "turning": lambda: updates([f"key:{at}" for at in range(count)]),
    }
    timed, note = interleaved(variants, runs=asked.runs)
    return Row(
        id="p4",
        what="time of updates that each turn to another adapter / of one adapter's",
        values=ratios(timed, "turning"),
        floor="one adapter's updates",
        note=note,
    )
