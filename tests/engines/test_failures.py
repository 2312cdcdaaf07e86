"""Clients that leave, models that fail, engines that close."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing

import pytest

from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.port import Generate, Score, Weights
from afterwit.errors import EngineError, EngineUnavailable
from tests.engines.parrot import LOST, NAN, POISON, Parrot, parrot_engine
from tests.engines.talk import ask, say

FOREVER = {"max_tokens": 3000}


async def test_a_client_that_leaves_frees_its_slot_at_once() -> None:
    module = Parrot(0)
    engine = parrot_engine(module, slots=1)
    async with aclosing(engine.generate(ask([1], **FOREVER))) as steps:
        await anext(steps)
        next_in_queue = asyncio.ensure_future(say(engine, ask([1], max_tokens=3)))
        for _ in range(5):
            await anext(steps)
        assert not next_in_queue.done()
    assert (await next_in_queue).ended == "length"
    assert len(module.forwards) < FOREVER["max_tokens"]
    await engine.close()


async def test_a_client_that_leaves_while_it_waits_leaves_the_queue() -> None:
    engine = parrot_engine(slots=1)
    async with aclosing(engine.generate(ask([1], **FOREVER))) as steps:
        await anext(steps)
        waiting = asyncio.ensure_future(say(engine, ask([POISON])))
        await anext(steps)
        waiting.cancel()
        await anext(steps)
    assert len((await say(engine, ask([1], max_tokens=5))).ids) == 5
    await engine.close()


async def test_a_client_that_leaves_among_others_takes_nothing_from_them(engine: EmbeddedEngine) -> None:
    """Rows move when a slot is freed: those that stay must keep their own keys."""
    requests = [ask(range(5 + i, 40 + 11 * i), max_tokens=40, seed=i, ignore_eos=True) for i in range(6)]
    alone = [await say(engine, request) for request in requests]

    async def leave(request: Generate, after: int) -> None:
        async with aclosing(engine.generate(request)) as steps:
            for _ in range(after):
                await anext(steps)

    leavers = [leave(ask(range(50, 60 + 30 * i), max_tokens=40), i) for i in range(6)]
    staying = [say(engine, request) for request in requests]
    mixed = [task for pair in zip(leavers, staying, strict=True) for task in pair]
    results = await asyncio.gather(*mixed)
    assert [said.ids for said in results[1::2]] == [said.ids for said in alone]


@pytest.mark.parametrize("token", [POISON, NAN])
async def test_only_the_request_that_the_model_fails_on_fails(token: int) -> None:
    engine = parrot_engine()
    good = [say(engine, ask([1, 2], max_tokens=50)) for _ in range(3)]
    bad = [
        say(engine, ask([1, token], max_tokens=50)),
        say(engine, ask([1, 2], forced=(5, token), max_tokens=50)),
    ]
    *said, in_prompt, in_response = await asyncio.gather(*good, *bad, return_exceptions=True)
    assert all(len(response.ids) == 50 for response in said)
    assert isinstance(in_prompt, EngineError)
    assert isinstance(in_response, EngineError)
    assert len((await say(engine, ask([1], max_tokens=5))).ids) == 5
    await engine.close()


async def test_after_a_failed_gpu_no_request_is_taken_and_the_fault_says_what_to_do() -> None:
    engine = parrot_engine()
    assert engine.fault is None
    with pytest.raises(EngineError, match="unspecified launch failure"):
        await say(engine, ask([1, LOST]))
    assert "restart it: CUDA error" in (engine.fault or "")
    with pytest.raises(EngineUnavailable, match="the GPU failed, and this process can use it no more"):
        await say(engine, ask([1]))
    await engine.close()


async def test_closing_tells_running_and_waiting_requests() -> None:
    engine = parrot_engine(slots=1)
    running, waiting = [asyncio.ensure_future(say(engine, ask([1], **FOREVER))) for _ in range(2)]
    await asyncio.sleep(0)
    await engine.close()
    await engine.close()
    for request in (running, waiting, say(engine, ask([1])), engine.promote()):
        with pytest.raises(EngineUnavailable):
            await request


async def test_background_work_yields_to_the_foreground_but_goes_on() -> None:
    gate = threading.Event()
    engine = parrot_engine(Parrot(0, gate))
    person = asyncio.ensure_future(say(engine, ask([1], max_tokens=400)))
    judge = asyncio.ensure_future(said_by_then(engine, person))
    await asyncio.sleep(0)
    gate.set()
    assert 400 / 8 < await judge < 400 / 2
    await engine.close()


async def said_by_then(engine: EmbeddedEngine, person: asyncio.Future) -> int:
    """The number of tokens of a background response on base weights when the person's is over."""
    request = ask([1], weights=Weights.BASE, background=True, **FOREVER)
    said = 0
    async with aclosing(engine.generate(request)) as steps:
        async for _ in steps:
            said += 1
            if person.done():
                break
    return said


async def test_a_foreground_request_does_not_wait_for_a_slot_that_background_work_holds() -> None:
    engine = parrot_engine(slots=4)
    async with asyncio.TaskGroup() as group:
        judges = [group.create_task(say(engine, ask([1], background=True, **FOREVER))) for _ in range(8)]
        person = await say(engine, ask([1], max_tokens=20))
        assert len(person.ids) == 20
        assert not any(judge.done() for judge in judges)
        for judge in judges:
            judge.cancel()
    await engine.close()


async def test_rows_that_wait_for_others_to_be_scored_end_when_the_engine_closes() -> None:
    engine = parrot_engine()
    rows = [Score(prompt_ids=(1,), response_ids=(2,))]
    calls = [asyncio.ensure_future(engine.score(rows, top=0, weights=Weights.LIVE)) for _ in range(2)]
    await asyncio.sleep(0)
    await engine.close()
    async with asyncio.timeout(10):
        _, second = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(second, EngineUnavailable)
