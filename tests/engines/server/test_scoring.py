"""Rows scored by a server: the weights used, the number at a time, and failures."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from afterwit.engines.port import Score, Weights
from afterwit.engines.server.client import gathered
from afterwit.engines.server.replica import SCORED_AT_ONCE
from afterwit.errors import EngineUnavailable
from tests.engines.server.pretend import PretendServer, engine_over, until

ROWS = [Score(prompt_ids=(5, 6), response_ids=(7, 8, at)) for at in range(20)]


async def test_rows_are_scored_by_the_live_adapter_or_by_the_base(base: Path, versions: list[Path]) -> None:
    server = PretendServer()
    async with engine_over(server, base) as engine:
        await engine.stage(1, versions[0])
        await engine.promote()
        live = await engine.score(ROWS, top=2, weights=Weights.LIVE)
        frozen = await engine.score(ROWS, top=2, weights=Weights.BASE)
        assert {each.version for each in live} == {1}
        assert {each.version for each in frozen} == {0}
        assert [each.top_ids[-1] for each in live] == [(99, at) for at in range(20)]
        assert live[3].logprobs == (-1.0, -1.0, -1.0)
        assert live[3].top_logprobs[0] == (-0.5, -1.0)


async def test_rows_are_scored_again_when_a_server_that_died_is_back(base: Path) -> None:
    server = PretendServer()
    async with engine_over(server, base) as engine:
        server.holds.clear()
        scoring = asyncio.create_task(engine.score(ROWS, top=1, weights=Weights.LIVE))
        await asyncio.sleep(0)
        server.up = False
        server.holds.set()
        await until(lambda: engine.fault == "nobody answers")
        assert not scoring.done()
        server.restart()
        assert len(await scoring) == len(ROWS)


async def test_rows_that_new_weights_came_between_are_scored_again_by_those(
    base: Path, wholes: list[Path]
) -> None:
    server = PretendServer()
    async with engine_over(server, base, swap="whole") as engine:
        server.holds.clear()
        scoring = asyncio.create_task(engine.score(ROWS, top=1, weights=Weights.LIVE))
        await engine.stage(1, wholes[0])
        await engine.promote()
        server.holds.set()
        assert {each.version for each in await scoring} == {1}


async def test_only_so_many_calls_are_made_at_one_time_and_one_that_fails_ends_the_others() -> None:
    now = most = 0
    ended = list[int]()

    async def call(number: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            await asyncio.sleep(0)
            if number == 30:
                raise EngineUnavailable("away")
            await asyncio.sleep(0)
        finally:
            now -= 1
        ended.append(number)
        return number

    def calls(count: int) -> list[object]:
        return [lambda number=number: call(number) for number in range(count)]

    assert await gathered(calls(20), SCORED_AT_ONCE) == list(range(20))
    assert most == SCORED_AT_ONCE
    ended.clear()
    with pytest.raises(EngineUnavailable):
        await gathered(calls(100), SCORED_AT_ONCE)
    await asyncio.sleep(0)
    assert now == 0
    assert len(ended) < 40
