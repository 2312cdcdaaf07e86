"""Two servers as one engine: routing, deaths, and new weights rolled out one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from pathlib import Path

import pytest

from afterwit.engines.port import Score, Weights
from afterwit.engines.server.fleet import MOST_AHEAD, Fleet
from afterwit.engines.server.settings import Swap
from afterwit.errors import EngineError, EngineUnavailable
from afterwit.turn import SHARED
from tests.engines.server.pretend import PretendServer, fleet_over, until
from tests.engines.talk import ask, say

PROMPT = tuple(range(3, 43))
OTHER = tuple(range(50, 90))
IDS = tuple(range(5))


@pytest.fixture
def servers() -> list[PretendServer]:
    return [PretendServer(), PretendServer()]


async def serve(fleet: Fleet, version: int, folder: Path) -> None:
    await fleet.stage(version, folder)
    await fleet.probe(IDS)
    await fleet.promote()


def answered(servers: Sequence[PretendServer]) -> list[int]:
    """Requests that each was asked."""
    return [len(each.asked) for each in servers]


async def test_a_conversation_stays_where_its_prompt_was_read_and_new_ones_are_spread(
    base: Path, servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        await say(fleet, ask(PROMPT))
        await say(fleet, ask(OTHER))
        for turn in range(1, 4):
            await say(fleet, ask((*PROMPT, *range(turn * 10))))
        assert answered(servers) == [4, 1]


async def test_a_server_that_is_much_busier_than_another_is_left(
    base: Path, servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        for server in servers:
            server.holds.clear()
        tasks = [asyncio.create_task(say(fleet, ask(PROMPT))) for _ in range(MOST_AHEAD + 1)]
        await until(lambda: sum(answered(servers)) == MOST_AHEAD + 1)
        assert answered(servers) == [MOST_AHEAD, 1]
        for server in servers:
            server.holds.set()
        await asyncio.gather(*tasks)


async def test_a_response_goes_on_at_another_server_when_its_own_dies(
    base: Path, versions: list[Path], servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        await serve(fleet, 1, versions[0])
        servers[0].breaks_at = {45}
        said = await say(fleet, ask(PROMPT, max_tokens=12))
        assert said.ids == tuple(range(40, 52))
        assert set(said.versions) == {1}
        assert servers[1].asked[0].prompt_ids == (*PROMPT, *range(40, 45))
        assert fleet.fault is None
        assert fleet.reduced == "1 of 2 servers are out: a: nobody answers"
        assert len((await say(fleet, ask(OTHER))).ids) == 24


async def test_a_server_that_was_away_serves_again_only_with_the_version_it_missed(
    base: Path, versions: list[Path], servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        await serve(fleet, 1, versions[0])
        servers[0].up = False
        await until(lambda: fleet.reduced)
        await serve(fleet, 2, versions[1])
        assert set((await say(fleet, ask(PROMPT))).versions) == {2}
        servers[0].restart()
        await until(lambda: fleet.reduced is None)
        servers[1].up = False
        await until(lambda: fleet.reduced)
        assert set((await say(fleet, ask(PROMPT))).versions) == {2}
        assert list(servers[0].adapters.values()) == [versions[1]]


async def test_without_any_server_requests_wait_and_then_say_which_are_out(
    base: Path, servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base, patience_s=0.01) as fleet:
        for server in servers:
            server.up = False
        await until(lambda: fleet.fault)
        assert fleet.reduced is None
        with pytest.raises(EngineUnavailable, match=r"2 of 2 servers are out: a: nobody answers; b: nobody"):
            await say(fleet, ask(PROMPT))
        servers[1].restart()
        await until(lambda: fleet.fault is None)
        assert len((await say(fleet, ask(PROMPT))).ids) == 24


async def test_a_request_that_brings_down_one_server_after_the_other_is_given_up(
    base: Path, servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base, patience_s=0.1) as fleet:
        for server in servers:
            server.breaks_at = set(range(200))
        with pytest.raises(EngineUnavailable):
            await say(fleet, ask(PROMPT))
        assert answered(servers) == [1, 1]


@pytest.mark.parametrize("swap", ["adapters", "whole"])
async def test_while_weights_are_rolled_through_every_session_comes_to_the_newest_version(
    base: Path, versions: list[Path], wholes: list[Path], servers: list[PretendServer], swap: Swap
) -> None:
    """Sessions talk without pause while versions come; one of the servers dies and comes back meanwhile."""
    folders, heard = versions if swap == "adapters" else wholes, dict[int, list[int]]()
    done = asyncio.Event()
    many = [*servers, PretendServer()]

    async def session(number: int) -> None:
        prompt = [number] * 20
        while not done.is_set():
            said = await say(fleet, ask(prompt, max_tokens=5, ignore_eos=True))
            heard.setdefault(number, []).extend(said.versions)
            prompt = [*prompt, *said.ids] if len(prompt) < 150 else [number] * 20

    async def swaps() -> None:
        for version in range(1, 10):
            if version == 4:
                many[0].up = False
            if version == 7:
                many[0].restart()
            while fleet.live(SHARED) != version:  # the publisher tries again if the staging server dies
                with suppress(EngineUnavailable):
                    await serve(fleet, version, folders[version % 3])
            await until(lambda version=version: sum(version in each for each in heard.values()) == 6)
        await until(lambda: fleet.reduced is None)
        done.set()

    async with fleet_over(many, base, swap=swap) as fleet:
        await asyncio.gather(*(session(number) for number in range(30, 36)), swaps())
    for versions_heard in heard.values():
        assert versions_heard[-1] == 9
    assert all(server.asked for server in many)


@pytest.mark.parametrize("deaths", [5, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("swap", ["adapters", pytest.param("whole", marks=pytest.mark.slow)])
async def test_no_response_is_lost_or_torn_in_many_deaths_of_each_server(
    base: Path,
    versions: list[Path],
    wholes: list[Path],
    servers: list[PretendServer],
    swap: Swap,
    deaths: int,
) -> None:
    """They die in the middle of responses, in turn, while versions come. Each id is the length before it.

    Between two deaths a server gets as many requests as there are sessions: a response that is broken off by
    one death after the other is given up, which another test shows.
    """
    folders, done = versions if swap == "adapters" else wholes, asyncio.Event()
    heard: dict[int, list[int]] = {}

    async def session(number: int) -> None:
        prompt = (number,) * 20
        while not done.is_set():
            said = await say(fleet, ask(prompt, max_tokens=30, ignore_eos=True))
            assert said.ids == tuple(range(20, 50))
            heard.setdefault(number, []).extend(said.versions)

    async def storm() -> None:
        for death in range(2 * deaths):
            server = servers[death % 2]
            asked = len(server.asked)
            await until(lambda server=server, asked=asked: len(server.asked) > asked + 20)
            server.up = False
            await until(lambda: fleet.reduced)
            if death % 5 == 0:
                await serve(fleet, fleet.version + 1, folders[fleet.version % 3])
            server.restart()
            await until(lambda: fleet.reduced is None)
        done.set()

    async with fleet_over(servers, base, swap=swap) as fleet:
        await asyncio.gather(*(session(number) for number in range(60, 80)), storm())
        assert fleet.version == 2 * deaths // 5
    assert {version for versions_heard in heard.values() for version in versions_heard} <= set(range(13))


async def test_others_serve_while_one_takes_whole_weights(
    base: Path, wholes: list[Path], servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base, swap="whole") as fleet:
        await fleet.stage(1, wholes[0])
        await fleet.probe(IDS)
        assert fleet.fault is None
        assert fleet.reduced == "1 of 2 servers are out: a: the server takes the weights of version 1"
        assert set((await say(fleet, ask(PROMPT))).versions) == {0}
        await fleet.promote()
        assert fleet.reduced is None
        assert set((await say(fleet, ask(PROMPT))).versions) == {1}


async def test_a_server_that_computes_other_log_probs_than_the_first_stays_out(
    base: Path, versions: list[Path], servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        servers[1].forgetful = True
        await serve(fleet, 1, versions[0])
        assert fleet.version == 1
        assert fleet.reduced is not None
        assert "b: the server's log-probs differ" in fleet.reduced
        for _ in range(3):
            assert set((await say(fleet, ask(OTHER))).versions) == {1}
        assert not servers[1].asked


async def test_a_version_that_the_first_server_refuses_is_refused_by_the_fleet(
    base: Path, versions: list[Path], servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        servers[0].refuses = {versions[0]}
        with pytest.raises(EngineError, match="does not fit"):
            await fleet.stage(1, versions[0])
        assert fleet.version == 0
        assert fleet.reduced is None


async def test_a_further_server_that_refuses_a_version_stays_out(
    base: Path, versions: list[Path], servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        servers[1].refuses = {versions[0]}
        await serve(fleet, 1, versions[0])
        assert fleet.reduced == "1 of 2 servers are out: b: it does not fit"
        assert {version for _ in range(3) for version in (await say(fleet, ask(OTHER))).versions} == {1}


async def test_a_version_is_staged_elsewhere_when_the_first_server_dies(
    base: Path, versions: list[Path], servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        await fleet.stage(1, versions[0])
        servers[0].up = False
        with pytest.raises(EngineUnavailable):
            await fleet.probe(IDS)
        await serve(fleet, 1, versions[0])
        assert set((await say(fleet, ask(PROMPT))).versions) == {1}
        servers[0].restart()
        await until(lambda: fleet.reduced is None)


async def test_nothing_is_staged_without_a_server(
    base: Path, versions: list[Path], servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        for server in servers:
            server.up = False
        with pytest.raises(EngineUnavailable):
            await fleet.stage(1, versions[0])
        await until(lambda: fleet.fault)
        with pytest.raises(EngineUnavailable, match="no server is there to take new weights: 2 of 2"):
            await fleet.stage(1, versions[0])


async def test_rows_are_scored_elsewhere_when_a_server_dies(base: Path, servers: list[PretendServer]) -> None:
    rows = [Score(prompt_ids=PROMPT, response_ids=(5, 6))]
    async with fleet_over(servers, base) as fleet:
        servers[0].holds.clear()
        scoring = asyncio.create_task(fleet.score(rows, top=2, weights=Weights.LIVE))
        await asyncio.sleep(0)
        servers[0].up = False
        servers[0].holds.set()
        (found,) = await scoring
        assert len(found.logprobs) == 2


async def test_closing_leaves_nothing_behind(
    base: Path, versions: list[Path], servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        await serve(fleet, 1, versions[0])
        async with aclosing(fleet.generate(ask(PROMPT, max_tokens=100))) as running:
            await anext(running)
            await fleet.close()
            assert fleet.fault == "The engine was closed."
            with pytest.raises(EngineUnavailable, match="closed"):
                async for _ in running:
                    pass
    assert [server.adapters for server in servers] == [{}, {}]
