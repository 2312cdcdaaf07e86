"""Sampling, refusals and cancellation in every engine."""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing

import pytest

from afterwit.engines.port import Engine, Weights
from afterwit.errors import ContextExceeded, EngineUnavailable, RequestRefused
from tests.engines.talk import ask, say

PROMPT = range(3, 40)


async def test_every_token_has_a_log_prob_a_version_and_a_flag(engine: Engine) -> None:
    said = await say(engine, ask(PROMPT, max_tokens=20, ignore_eos=True))
    assert len(said.ids) == len(said.logprobs) == len(said.versions) == len(said.forced) == 20
    assert all(0 <= index < engine.facts.vocabulary for index in said.ids)
    assert all(math.isfinite(value) and value <= 1e-6 for value in said.logprobs)
    assert set(said.versions) == {engine.version}
    assert not any(said.forced)


async def test_only_the_last_step_says_why_the_response_ended(engine: Engine) -> None:
    async with aclosing(engine.generate(ask(PROMPT, max_tokens=9, ignore_eos=True))) as steps:
        ends = [step.ended async for step in steps]
    assert ends[-1] == "length"
    assert not any(ends[:-1])


async def test_a_forced_prefix_comes_first_and_is_flagged(engine: Engine) -> None:
    if not engine.capabilities.forced_prefix:
        pytest.skip("this engine forces no prefix")
    said = await say(engine, ask(PROMPT, forced=(400, 401, 402), max_tokens=8, ignore_eos=True))
    assert said.ids[:3] == (400, 401, 402)
    assert said.forced == (True,) * 3 + (False,) * 5


async def test_an_end_id_ends_the_response_and_is_part_of_it(engine: Engine) -> None:
    if not engine.capabilities.forced_prefix:
        pytest.skip("this engine forces no prefix")
    end = min(engine.facts.end_ids)
    said = await say(engine, ask(PROMPT, forced=(400, end, 401)))
    assert said.ids == (400, end)
    assert said.ended == "stop"
    ignored = await say(engine, ask(PROMPT, forced=(400, end, 401), ignore_eos=True, max_tokens=3))
    assert ignored.ids == (400, end, 401)


async def test_a_stop_id_ends_the_response_and_is_part_of_it(engine: Engine) -> None:
    everything = tuple(range(engine.facts.vocabulary))
    said = await say(engine, ask(PROMPT, stop_ids=everything, ignore_eos=True))
    assert len(said.ids) == 1
    assert said.ended == "stop"


async def test_the_context_limit_ends_a_response(engine: Engine) -> None:
    prompt = [7] * (engine.facts.context_length - 5)
    said = await say(engine, ask(prompt, max_tokens=1000, ignore_eos=True))
    assert len(said.ids) == 5
    assert said.ended == "length"


async def test_a_prompt_that_fills_the_context_is_refused(engine: Engine) -> None:
    with pytest.raises(ContextExceeded):
        await say(engine, ask([7] * engine.facts.context_length))


@pytest.mark.parametrize(
    ("prompt", "sampling", "field"),
    [
        ((), {}, "prompt"),
        ((1, 10**6), {}, "prompt"),
        ((1, -1), {}, "prompt"),
        ((1,), {"max_tokens": 0}, "max_tokens"),
        ((1,), {"logit_bias": ((10**6, 1.0),)}, "logit_bias"),
    ],
)
async def test_a_request_that_does_not_fit_the_model_is_refused_by_field(
    engine: Engine, prompt: tuple[int, ...], sampling: dict[str, object], field: str
) -> None:
    with pytest.raises(RequestRefused) as refused:
        await say(engine, ask(prompt, **sampling))
    assert refused.value.field == field


async def test_many_responses_at_once_are_each_whole(engine: Engine) -> None:
    requests = [ask(range(3, 9 + i), max_tokens=5 + i, ignore_eos=True) for i in range(9)]
    said = await asyncio.gather(*(say(engine, request) for request in requests))
    assert [len(response.ids) for response in said] == [5 + i for i in range(9)]


async def test_clients_that_leave_do_not_disturb_the_others(engine: Engine) -> None:
    async def leave_after(tokens: int) -> None:
        async with aclosing(engine.generate(ask(PROMPT, max_tokens=300, ignore_eos=True))) as steps:
            seen = 0
            while seen < tokens:  # a busy server sends several tokens in a step
                seen += len((await anext(steps)).ids)

    stays = say(engine, ask(PROMPT, max_tokens=12, ignore_eos=True))
    *_, said = await asyncio.gather(*(leave_after(count) for count in (0, 1, 2, 5, 1)), stays)
    assert len(said.ids) == 12
    assert len((await say(engine, ask(PROMPT, max_tokens=4, ignore_eos=True))).ids) == 4


async def test_base_weights_are_served_beside_live_ones(engine: Engine) -> None:
    if not engine.capabilities.base_weights:
        pytest.skip("this engine serves live weights only")
    request = ask(PROMPT, weights=Weights.BASE, background=True, max_tokens=4, ignore_eos=True)
    assert len((await say(engine, request)).ids) == 4


async def test_closing_ends_what_runs_and_refuses_what_comes(engine: Engine) -> None:
    room = engine.facts.context_length - len(PROMPT)  # else a fast server ends before a slow client closes
    async with aclosing(engine.generate(ask(PROMPT, max_tokens=room, ignore_eos=True))) as running:
        await anext(running)
        await engine.close()
        await engine.close()
        with pytest.raises(EngineUnavailable):
            async for _ in running:
                pass
    with pytest.raises(EngineUnavailable):
        await say(engine, ask(PROMPT))
