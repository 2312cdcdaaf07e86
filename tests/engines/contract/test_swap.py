"""How new weights come into every engine."""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing

import pytest

from afterwit.engines.port import Engine, Step, Weights
from afterwit.errors import EngineError
from tests.engines.contract.factories import Models
from tests.engines.talk import ask, rescored, say

PROMPT = range(3, 40)
IDS = tuple(range(10, 40))
SWAPS = 6
"""More than a test server has room for adapters."""


async def test_staged_weights_serve_nobody_until_they_are_promoted(engine: Engine, models: Models) -> None:
    before = engine.version
    await engine.stage(before + 1, models.newer_for(engine))
    assert engine.version == before
    assert set((await say(engine, ask(PROMPT))).versions) == {before}
    await engine.promote()
    assert engine.version == before + 1
    assert set((await say(engine, ask(PROMPT))).versions) == {before + 1}


async def test_a_probe_scores_every_id_but_the_first(engine: Engine, models: Models) -> None:
    await engine.stage(engine.version + 1, models.newer_for(engine))
    ids = IDS[: engine.capabilities.longest_probe]
    scored = await engine.probe(ids)
    assert len(scored) == len(ids) - 1
    assert all(math.isfinite(value) and value <= 0 for value in scored)
    assert await engine.probe(ids) == pytest.approx(scored, abs=1e-6)


async def test_without_staged_weights_nothing_is_probed_or_promoted(engine: Engine, models: Models) -> None:
    before = engine.version
    await engine.discard()
    await engine.stage(before + 1, models.newer_for(engine))
    await engine.discard()
    for action in (engine.promote(), engine.probe(IDS)):
        with pytest.raises(EngineError):
            await action
    assert engine.version == before


async def test_weights_that_do_not_fit_are_refused_and_serving_goes_on(
    engine: Engine, models: Models
) -> None:
    before = engine.version
    with pytest.raises(EngineError):
        await engine.stage(before + 1, models.unfit)
    with pytest.raises(EngineError):
        await engine.promote()
    assert set((await say(engine, ask(PROMPT))).versions) == {before}


async def test_responses_live_through_a_swap_and_say_what_they_attended_to(
    engine: Engine, models: Models
) -> None:
    """No response fails; a token names its version, and attends to no keys and values of newer ones."""
    before, started, swapped = engine.version, asyncio.Event(), asyncio.Event()

    async def respond(length: int) -> list[Step]:
        steps = []
        async for step in engine.generate(ask(PROMPT, max_tokens=length, ignore_eos=True)):
            steps.append(step)
            started.set()
        return steps

    async def swap() -> None:
        await engine.stage(before + 1, models.newer_for(engine))
        await started.wait()
        await engine.promote()
        swapped.set()

    *responses, _ = await asyncio.gather(*(respond(300) for _ in range(3)), swap())
    for steps in responses:
        versions = [version for step in steps for version in step.versions]
        assert len(versions) == 300
        assert versions == sorted(versions)
        assert set(versions) <= {before, before + 1}
        caches = [step.cache_version for step in steps]
        assert set(caches) == {None} or caches == sorted(caches)
        assert all(step.cache_version in (None, *range(min(step.versions) + 1)) for step in steps)


async def test_the_base_answers_as_before_in_one_batch_with_new_weights_after_many_swaps(
    engine: Engine, models: Models
) -> None:
    if not engine.capabilities.base_weights or engine.facts.name == "fake":
        pytest.skip("this engine serves live weights only, or its log-probs are made up")
    for _ in range(SWAPS):
        await engine.stage(engine.version + 1, models.newer_for(engine))
        await engine.probe(IDS[: engine.capabilities.longest_probe])
        await engine.promote()
    base = ask(PROMPT, max_tokens=12, ignore_eos=True, weights=Weights.BASE)
    async with aclosing(engine.generate(ask(PROMPT, max_tokens=300, ignore_eos=True))) as beside:
        await anext(beside)
        said = await say(engine, base)
    assert said.logprobs == pytest.approx(rescored(models.base, base, said, 1.0).tolist(), abs=1e-4)
