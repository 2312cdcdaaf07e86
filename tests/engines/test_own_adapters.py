"""Many adapters in one batch of the embedded engine: each row as if it were alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch

from afterwit.engines.embedded.engine import load_module, load_version
from afterwit.engines.embedded.forward import score
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.errors import EngineError
from afterwit.weights.adapter import lora_of
from afterwit.weights.weights import RowAdapters, pairs_of
from experiments.simulation.lockstep import BatchEngine
from tests.engines.talk import Said, ask, say
from tests.fakes.adapters import noise

CPU = torch.device("cpu")
PEOPLE = 4


@pytest.fixture(scope="module")
def own(qwen: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """An adapter for each of several people; their ranks differ."""
    made = tmp_path_factory.mktemp("own")
    return [noise(made / str(seed), qwen, seed=seed, rank=2 + seed % 3) for seed in range(PEOPLE)]


@pytest.fixture(params=["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
async def engine(qwen: Path, request: pytest.FixtureRequest) -> AsyncIterator[BatchEngine]:
    settings = EmbeddedSettings(prefill_chunk=16, slots=PEOPLE + 1, prefix_cache_gib=0.1, dtype=request.param)
    engine = BatchEngine.load(qwen, settings, seed=0)
    yield engine
    await engine.close()


async def load(engine: BatchEngine, folder: Path, person: int, version: int | None = None) -> None:
    await engine.stage(version or 100 + person, folder, adapter=f"key:{person}")
    await engine.promote()


def alone(qwen: Path, engine: BatchEngine, folder: Path, prompt: range, said: Said) -> list[float]:
    """The response's log-probs by the code that serves one adapter as the shared one."""
    dtype = getattr(torch, engine.facts.dtype)
    module = load_version(folder, load_module(qwen, CPU, dtype), qwen, CPU, dtype)
    return score(module, (*prompt, *said.ids))[-len(said.ids) :]


async def test_each_row_of_a_batch_has_the_log_probs_of_its_adapter_alone(
    engine: BatchEngine, qwen: Path, own: list[Path]
) -> None:
    for person, folder in enumerate(own):
        await load(engine, folder, person)
    prompts = [range(3 + person, 30 + 3 * person) for person in range(PEOPLE)]
    said = await engine.generate_together(
        [ask(prompt, adapter=f"key:{person}", seed=person) for person, prompt in enumerate(prompts)]
        + [ask(prompts[0], adapter="key:new", seed=0)]
    )
    close = 1e-4 if engine.facts.dtype == "float32" else 0.1
    for person, (prompt, steps) in enumerate(zip(prompts, said[:PEOPLE], strict=True)):
        ids = tuple(step.ids[0] for step in steps)
        whole = Said(ids=ids, logprobs=(), versions=(), forced=(), top_logprobs=(), ended=None, steps=0)
        expected = alone(qwen, engine, own[person], prompt, whole)
        assert [step.logprobs[0] for step in steps] == pytest.approx(expected, abs=close)
        assert {step.versions[0] for step in steps} == {100 + person}
    assert {step.versions[0] for step in said[-1]} == {0}


async def test_what_one_learns_changes_nobody_elses_log_probs_by_a_bit(
    engine: BatchEngine, own: list[Path]
) -> None:
    for person in range(3):
        await load(engine, own[person], person)
    requests = [ask(range(5, 40), adapter=f"key:{person}", seed=person) for person in range(3)]

    async def together() -> list[list[float]]:
        for person in range(3):  # nothing that was read before is found again
            await load(engine, own[person], person)
        said = await engine.generate_together(requests)
        return [[step.logprobs[0] for step in steps] for steps in said]

    before = await together()
    own_1, own[1] = own[1], own[3]
    after = await together()
    own[1] = own_1
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1] != before[1]


async def test_keys_and_values_of_one_adapter_are_never_read_by_another(
    engine: BatchEngine, own: list[Path]
) -> None:
    prompt = range(3, 90)
    for person in range(2):
        await load(engine, own[person], person)
    fresh = await say(engine, ask(prompt, adapter="key:1", seed=4))
    await load(engine, own[1], 1, version=300)
    for adapter in ("key:0", "shared", "key:new"):
        await say(engine, ask(prompt, adapter=adapter, seed=4))
    said = await say(engine, ask(prompt, adapter="key:1", seed=4))
    again = await say(engine, ask(prompt, adapter="key:1", seed=4))
    assert (said.ids, said.logprobs) == (fresh.ids, fresh.logprobs)
    assert again.logprobs == pytest.approx(
        fresh.logprobs, abs=1e-4 if engine.facts.dtype == "float32" else 0.2
    )
    assert set(said.versions) == {300}


async def test_a_swap_and_an_unloading_end_no_response_that_is_under_way(
    engine: BatchEngine, own: list[Path]
) -> None:
    await load(engine, own[0], 0)
    asked = ask(range(3, 30), adapter="key:0", max_tokens=60, ignore_eos=True)
    steps = engine.generate(asked)
    first = [await anext(steps) for _ in range(3)]
    await load(engine, own[1], 0, version=200)
    second = [await anext(steps) for _ in range(20)]
    await engine.unload("key:0")
    rest = [step async for step in steps]
    assert {step.versions[0] for step in first} == {100}
    assert {step.versions[0] for step in second} <= {100, 200}
    assert rest[-1].versions == (200,)
    assert rest[-1].cache_version == 100
    assert len(first) + len(second) + len(rest) == 60


async def test_an_adapter_takes_its_factors_and_no_copy_of_a_layer(
    engine: BatchEngine, qwen: Path, own: list[Path]
) -> None:
    base = load_module(qwen, CPU, torch.float32)
    rows = RowAdapters(base)
    lora = lora_of(own[0])
    assert lora is not None
    factors = rows.fitted(pairs_of(own[0]), lora.scale)
    assert {name: pair.b_OR.shape for name, pair in factors.pairs.items()} == {
        name: pair.b_OR.shape for name, pair in pairs_of(own[0]).items()
    }
    shared = zip(base.parameters(), rows.module.parameters(), strict=True)
    assert all(one.data_ptr() == other.data_ptr() for one, other in shared)


async def test_whole_weights_are_nobodys_own(engine: BatchEngine, newer_qwen: Path, qwen: Path) -> None:
    with pytest.raises(EngineError, match="holds no adapter"):
        await engine.stage(1, newer_qwen, adapter="key:0")
    await engine.stage(2, qwen, adapter="key:0")
    await engine.promote()
    assert set((await say(engine, ask(range(3, 9), adapter="key:0"))).versions) == {2}


async def test_people_come_and_go_while_others_answer(engine: BatchEngine, own: list[Path]) -> None:
    """Rows join, leave and change places in the batch; each keeps its own adapter."""
    for person, folder in enumerate(own):
        await load(engine, folder, person)

    async def talk(person: int) -> None:
        for length in (3, 17, 5):
            prompt = range(3 + person, 40 + length)
            said = await say(engine, ask(prompt, adapter=f"key:{person}", max_tokens=length, ignore_eos=True))
            assert set(said.versions) == {100 + person}

    await asyncio.gather(*(talk(person) for person in range(PEOPLE)))
