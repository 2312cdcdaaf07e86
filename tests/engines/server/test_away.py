"""A server that dies, and comes back: requests wait, go on, and never meet the wrong weights."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from afterwit.engines.port import Weights
from afterwit.engines.server.fleet import MOST_INTERRUPTIONS, Fleet
from afterwit.errors import EngineUnavailable
from tests.engines.server.pretend import PretendServer, engine_over, until
from tests.engines.talk import ask, say

PROMPT = range(3, 13)


async def serve_version_1(engine: Fleet, folder: Path) -> None:
    await engine.stage(1, folder)
    await engine.probe(range(5))
    await engine.promote()


async def until_away(engine: Fleet) -> None:
    await until(lambda: engine.fault is not None)


async def until_back(engine: Fleet) -> None:
    await until(lambda: engine.fault is None)


async def test_a_response_that_was_broken_off_goes_on_where_it_was_when_the_server_is_back(
    base: Path, versions: list[Path]
) -> None:
    server = PretendServer()
    async with engine_over(server, base) as engine:
        await serve_version_1(engine, versions[0])
        server.breaks_at = {15}
        response = asyncio.create_task(say(engine, ask(PROMPT, max_tokens=12)))
        await until_away(engine)
        server.restart()
        said = await response
    assert said.ids == tuple(range(10, 22))
    assert set(said.versions) == {1}
    first, again = (each.weights for each in server.asked)
    assert first != again, "the adapter was loaded anew before anything was asked of it"
    assert server.asked[1].prompt_ids == (*PROMPT, *range(10, 15))


async def test_a_request_waits_for_a_server_that_is_away_and_says_so_after_its_patience(base: Path) -> None:
    server = PretendServer()
    async with engine_over(server, base, patience_s=0.01) as engine:
        server.up = False
        await until_away(engine)
        assert engine.fault == "nobody answers"
        with pytest.raises(EngineUnavailable, match=r"nobody answers \(a request waited 0.01 s\)"):
            await say(engine, ask(PROMPT))
        server.restart()
        await until_back(engine)
        assert len((await say(engine, ask(PROMPT))).ids) == 24


async def test_a_request_that_brings_the_server_down_each_time_is_given_up(base: Path) -> None:
    server = PretendServer()
    async with engine_over(server, base) as engine:
        server.breaks_at = set(range(200))
        request = asyncio.create_task(say(engine, ask(PROMPT)))
        for times in range(1, MOST_INTERRUPTIONS + 2):
            await until(lambda times=times: len(server.asked) == times and not server.up)
            await until_away(engine)
            server.breaks_at = set(range(200))
            server.restart()
        with pytest.raises(EngineUnavailable, match="nobody answers"):
            await request


async def test_a_server_that_comes_back_with_other_weights_serves_nobody(
    base: Path, versions: list[Path]
) -> None:
    server = PretendServer()
    async with engine_over(server, base, patience_s=0.01) as engine:
        await serve_version_1(engine, versions[0])
        server.up = False
        await until_away(engine)
        server.forgetful = True
        server.restart()
        await until(lambda: "same weights" in (engine.fault or ""))
        for weights in Weights:
            with pytest.raises(EngineUnavailable, match="does not serve the same weights"):
                await say(engine, ask(PROMPT, weights=weights))
        server.forgetful = False
        await until_back(engine)
        assert set((await say(engine, ask(PROMPT))).versions) == {1}


async def test_a_restart_between_two_looks_is_noticed_by_the_label_of_whole_weights(
    base: Path, wholes: list[Path]
) -> None:
    server = PretendServer()
    async with engine_over(server, base, swap="whole") as engine:
        await serve_version_1(engine, wholes[0])
        server.restart()
        await until_away(engine)
        said = await say(engine, ask(PROMPT))
        assert server.weights == wholes[0]
        assert set(said.versions) == {1}


async def test_closing_ends_a_wait(base: Path) -> None:
    server = PretendServer()
    async with engine_over(server, base) as engine:
        server.up = False
        await until_away(engine)
        waits = asyncio.create_task(say(engine, ask(PROMPT)))
        await asyncio.sleep(0)
        await engine.close()
        with pytest.raises(EngineUnavailable, match="closed"):
            await waits
