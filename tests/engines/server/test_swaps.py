"""Adapters next to each other, whole weights in place of each other: who samples what, and what is left."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from afterwit.engines.port import Step, Weights
from afterwit.errors import EngineError
from tests.engines.server.conftest import whole
from tests.engines.server.pretend import PretendServer, engine_over, until
from tests.engines.talk import ask, say

PROMPT = range(3, 13)


async def test_a_response_ends_with_the_adapter_it_began_with_which_is_then_unloaded(
    base: Path, versions: list[Path]
) -> None:
    server = PretendServer()
    async with engine_over(server, base) as engine:
        await engine.stage(1, versions[0])
        await engine.promote()
        async with aclosing(engine.generate(ask(PROMPT, max_tokens=6))) as running:
            steps = [await anext(running)]
            await engine.stage(2, versions[1])
            await engine.promote()
            assert set((await say(engine, ask(PROMPT))).versions) == {2}
            assert server.unloaded == []
            steps += [step async for step in running]
        assert [step.versions for step in steps] == [(1,)] * 6
        await until(lambda: server.unloaded)
        assert list(server.adapters.values()) == [versions[1]]
        base_says = await say(engine, ask(PROMPT, weights=Weights.BASE))
        assert set(base_says.versions) == {0}
        assert server.asked[-1].weights is None
    assert server.adapters == {}, "closing leaves no adapter behind"


async def test_a_rollback_to_the_base_needs_no_adapter(base: Path, versions: list[Path]) -> None:
    server = PretendServer()
    async with engine_over(server, base) as engine:
        await engine.stage(1, versions[0])
        await engine.promote()
        await engine.stage(2, base)
        await engine.promote()
        assert set((await say(engine, ask(PROMPT))).versions) == {2}
        assert server.asked[-1].weights is None


async def test_the_wrong_kind_of_weights_is_refused_with_the_setting(
    base: Path, versions: list[Path], wholes: list[Path]
) -> None:
    async with engine_over(PretendServer(), base) as engine:
        with pytest.raises(EngineError, match=r'engine\.swap = "whole"'):
            await engine.stage(1, wholes[0])
    async with engine_over(PretendServer(), base, swap="whole") as engine:
        with pytest.raises(EngineError, match=r'engine\.swap = "adapters"'):
            await engine.stage(1, versions[0])


async def test_whole_weights_of_another_shape_are_refused_before_the_server_sees_them(
    base: Path, tmp_path: Path
) -> None:
    server = PretendServer()
    async with engine_over(server, base, swap="whole") as engine:
        for name, tensors in (("wider", {"embed": [4, 3]}), ("deeper", {"embed": [4, 2], "layer": [1]})):
            with pytest.raises(EngineError, match="do not fit"):
                await engine.stage(1, whole(tmp_path / name, **tensors))
    assert server.weights is None


async def test_responses_wait_while_whole_weights_come_in_and_go_on_with_them(
    base: Path, wholes: list[Path]
) -> None:
    server = PretendServer()
    async with engine_over(server, base, swap="whole") as engine:
        request = ask(PROMPT, max_tokens=40)
        async with aclosing(engine.generate(request)) as running:
            steps: list[Step] = [await anext(running) for _ in range(3)]
            server.holds.clear()
            waits = asyncio.create_task(anext(running))
            await asyncio.sleep(0)
            await engine.stage(1, wholes[0])
            await engine.probe(range(5))
            late = asyncio.create_task(say(engine, request))
            server.holds.set()
            for _ in range(50):
                await asyncio.sleep(0)
            assert not waits.done()
            assert not late.done(), "nobody is served by weights that are not promoted"
            assert engine.fault == "the server takes the weights of version 1"
            await engine.promote()
            steps += [await waits, *[step async for step in running]]
        assert [step.ids[0] for step in steps] == list(range(10, 50))
        assert [step.versions[0] for step in steps] == [0] * 3 + [1] * 37
        assert all(step.cache_version == step.versions[0] for step in steps)
        assert set((await late).versions) == {1}


@pytest.mark.parametrize("how", ["probe", "promote"])
async def test_after_whole_weights_that_the_server_refuses_the_old_ones_serve(
    base: Path, wholes: list[Path], how: str
) -> None:
    server = PretendServer()
    async with engine_over(server, base, swap="whole") as engine:
        await engine.stage(1, wholes[0])
        await engine.promote()
        server.refuses = {wholes[1]}
        await engine.stage(2, wholes[1])
        with pytest.raises(EngineError, match="does not fit"):
            await (engine.probe(range(5)) if how == "probe" else engine.promote())
        assert server.weights == wholes[0]
        assert set((await say(engine, ask(PROMPT))).versions) == {1}


async def test_discarded_whole_weights_make_room_for_the_live_ones(base: Path, wholes: list[Path]) -> None:
    server = PretendServer()
    async with engine_over(server, base, swap="whole") as engine:
        await engine.stage(1, wholes[0])
        await engine.probe(range(5))
        await engine.discard()
        assert server.weights == base
        assert set((await say(engine, ask(PROMPT))).versions) == {0}


async def test_a_server_that_kept_the_weights_of_an_earlier_run_reads_the_base_first(
    base: Path, wholes: list[Path]
) -> None:
    server = PretendServer()
    server.weights, server.label = wholes[0], "afterwit-7"
    async with engine_over(server, base, swap="whole"):
        assert server.weights == base


async def test_a_forced_beginning_is_part_of_the_prompt_and_counts(base: Path) -> None:
    server = PretendServer()
    async with engine_over(server, base) as engine:
        said = await say(engine, ask(PROMPT, forced=(50, 51), max_tokens=5))
    assert said.ids == (50, 51, 12, 13, 14)
    assert said.forced == (True, True, False, False, False)
    assert said.logprobs[:2] == (0.0, 0.0)
    assert server.asked[0].prompt_ids == (*PROMPT, 50, 51)
