"""The embedded engine generates what the model itself would."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Weights
from afterwit.errors import ContextExceeded
from tests.engines.talk import ask, plain_logits, rescored, say

PROMPT = range(3, 60)


async def test_log_probs_of_a_crowd_are_those_of_a_plain_forward(family: Path) -> None:
    engine = EmbeddedEngine.load(family, EmbeddedSettings(prefill_chunk=16, slots=4))
    requests = [
        ask(range(3 + i, 30 + 7 * i), max_tokens=10 + 3 * i, temperature=0.7 + 0.1 * i, seed=i)
        for i in range(9)
    ]
    crowd = await asyncio.gather(*(say(engine, request) for request in requests))
    await engine.close()
    for request, said in zip(requests, crowd, strict=True):
        again = rescored(family, request, said, request.sampling.temperature)
        torch.testing.assert_close(torch.tensor(said.logprobs), again, atol=1e-4, rtol=0)


async def test_a_response_is_the_same_alone_and_in_a_crowd(engine: EmbeddedEngine) -> None:
    requests = [ask(range(5, 20 + 9 * i), temperature=0.9, top_p=0.95, seed=i) for i in range(6)]
    crowd = await asyncio.gather(*(say(engine, request) for request in requests))
    for request, said in zip(requests, crowd, strict=True):
        alone = await say(engine, request)
        assert alone.ids == said.ids
        assert alone.logprobs == pytest.approx(said.logprobs, abs=1e-4)


async def test_a_seed_reproduces_a_response_and_another_seed_does_not(engine: EmbeddedEngine) -> None:
    once, twice, other = [await say(engine, ask(PROMPT, seed=seed)) for seed in (7, 7, 8)]
    assert once.ids == twice.ids
    assert once.ids != other.ids


async def test_without_a_seed_responses_differ(engine: EmbeddedEngine) -> None:
    once, twice = [await say(engine, ask(PROMPT)) for _ in range(2)]
    assert once.ids != twice.ids


async def test_every_token_is_a_step_of_its_own(engine: EmbeddedEngine) -> None:
    said = await say(engine, ask(PROMPT, max_tokens=20, ignore_eos=True))
    assert said.steps == len(said.ids) == 20
    assert said.ended == "length"
    assert not any(said.forced)


async def test_greedy_takes_the_mode_and_reports_temperature_one(engine: EmbeddedEngine, qwen: Path) -> None:
    request = ask(PROMPT, temperature=0.0, top_k=3)
    said = await say(engine, request)
    logits_TV = plain_logits(qwen, (*PROMPT, *said.ids))[len(PROMPT) - 1 : -1]
    assert tuple(logits_TV.argmax(-1).tolist()) == said.ids
    assert said.logprobs == pytest.approx(rescored(qwen, request, said, 1.0).tolist(), abs=1e-4)


async def test_a_forced_prefix_comes_first_flagged_with_true_log_probs(
    engine: EmbeddedEngine, qwen: Path
) -> None:
    request = ask(PROMPT, forced=(400, 401, 402), max_tokens=8, ignore_eos=True)
    said = await say(engine, request)
    assert said.ids[:3] == (400, 401, 402)
    assert said.forced == (True,) * 3 + (False,) * 5
    assert said.logprobs == pytest.approx(rescored(qwen, request, said, 1.0).tolist(), abs=1e-4)


async def test_a_forced_token_outside_the_truncation_has_a_finite_log_prob(engine: EmbeddedEngine) -> None:
    said = await say(engine, ask(PROMPT, forced=(400,), top_k=1, max_tokens=4))
    assert all(logprob > -1000 for logprob in said.logprobs)


async def test_a_stop_id_ends_the_response_and_is_part_of_it(engine: EmbeddedEngine) -> None:
    request = ask(PROMPT, seed=3, ignore_eos=True)
    whole = await say(engine, request)
    stop = whole.ids[5]
    said = await say(engine, ask(PROMPT, seed=3, ignore_eos=True, stop_ids=(stop,)))
    assert said.ids == whole.ids[: whole.ids.index(stop) + 1]
    assert said.ended == "stop"


async def test_an_end_id_ends_a_turn_unless_ignored(engine: EmbeddedEngine) -> None:
    (end,) = engine.facts.end_ids
    said = await say(engine, ask(PROMPT, forced=(400, end, 401)))
    assert said.ids == (400, end)
    assert said.ended == "stop"
    ignored = await say(engine, ask(PROMPT, forced=(400, end, 401), ignore_eos=True, max_tokens=3))
    assert ignored.ids == (400, end, 401)


async def test_the_context_limit_ends_a_response(qwen: Path) -> None:
    engine = EmbeddedEngine.load(qwen, EmbeddedSettings(context_length=64))
    said = await say(engine, ask(range(3, 60), max_tokens=1000, ignore_eos=True))
    assert len(said.ids) == 64 - 57
    assert said.ended == "length"
    with pytest.raises(ContextExceeded):
        await say(engine, ask(range(3, 67)))
    await engine.close()


async def test_penalties_and_bias_change_what_is_said(engine: EmbeddedEngine) -> None:
    biased = await say(engine, ask(PROMPT, logit_bias=((300, 100.0),), max_tokens=5))
    assert biased.ids == (300,) * 5
    varied = await say(engine, ask(PROMPT, logit_bias=((300, 40.0),), frequency_penalty=2.0, max_tokens=60))
    assert len(set(varied.ids)) > 1


async def test_a_script_is_said_with_the_models_own_log_probs(qwen: Path) -> None:
    answer = (100, 101, 102)
    engine = EmbeddedEngine.load(qwen, EmbeddedSettings(), script=lambda ids: answer if ids[0] == 3 else None)
    (end,) = engine.facts.end_ids
    request = ask(PROMPT, temperature=0.6)
    said = await say(engine, request)
    assert said.ids == (*answer, end)
    assert not any(said.forced)
    assert said.ended == "stop"
    assert said.logprobs == pytest.approx(rescored(qwen, request, said, 0.6).tolist(), abs=1e-4)
    assert (await say(engine, ask(range(4, 20)))).ids[:3] != answer
    await engine.close()


async def test_base_and_live_say_the_same_before_any_version(engine: EmbeddedEngine) -> None:
    live = await say(engine, ask(PROMPT, seed=1))
    base = await say(engine, ask(PROMPT, seed=1, weights=Weights.BASE))
    assert live.ids == base.ids
    assert set(base.versions) == {0}
