"""Responses from one batch: whole, in order, and the same each time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Weights
from afterwit.errors import EngineUnavailable, RequestRefused
from experiments.simulation.lockstep import BatchEngine
from tests.engines.talk import ask, say


@pytest.fixture
async def engine(qwen: Path) -> AsyncIterator[BatchEngine]:
    engine = BatchEngine.load(qwen, EmbeddedSettings(prefill_chunk=16, slots=8), seed=0)
    yield engine
    await engine.close()


async def test_they_are_what_each_would_be_alone(engine: BatchEngine) -> None:
    requests = [ask(range(5, 20 + 9 * i), temperature=0.9, seed=i, max_tokens=5 + i) for i in range(8)]
    together = await engine.generate_together(requests)
    for request, steps in zip(requests, together, strict=True):
        alone = await say(engine, request)
        assert tuple(step.ids[0] for step in steps) == alone.ids
        assert [step.logprobs[0] for step in steps] == pytest.approx(alone.logprobs, abs=1e-4)
        assert [bool(step.ended) for step in steps] == [False] * (len(steps) - 1) + [True]


async def test_if_nothing_is_kept_the_same_requests_give_the_very_same_log_probs(qwen: Path) -> None:
    engine = BatchEngine.load(qwen, EmbeddedSettings(prefill_chunk=16, slots=8, prefix_cache_gib=0))
    requests = [ask(range(5, 40 + 3 * i), temperature=0.8, seed=i) for i in range(10)]
    assert await engine.generate_together(requests) == await engine.generate_together(requests)
    await engine.close()


async def test_live_and_base_weights_may_be_asked_together(engine: BatchEngine) -> None:
    both = [ask(range(5, 30), seed=1, weights=weights) for weights in (Weights.LIVE, Weights.BASE)]
    live, base = await engine.generate_together(both)
    assert [step.ids for step in live] == [step.ids for step in base]


async def test_nothing_asked_is_nothing_answered(engine: BatchEngine) -> None:
    assert await engine.generate_together([]) == []


async def test_a_request_that_does_not_fit_is_refused_before_any_runs(engine: BatchEngine) -> None:
    with pytest.raises(RequestRefused, match="no tokens"):
        await engine.generate_together([ask(range(5, 9)), ask(())])


async def test_a_closed_engine_says_so(engine: BatchEngine) -> None:
    await engine.close()
    with pytest.raises(EngineUnavailable):
        await engine.generate_together([ask(range(5, 9))])
