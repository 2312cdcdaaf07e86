"""Personal adapters over several servers: on each server, and never another person's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from afterwit.engines.server.fleet import Fleet
from afterwit.errors import EngineError
from tests.engines.server.pretend import PretendServer, fleet_over, until
from tests.engines.talk import ask, say

PROMPT = tuple(range(3, 43))
IDS = tuple(range(5))
ANN, BOB = "key:ann", "key:bob"


@pytest.fixture
def servers() -> list[PretendServer]:
    return [PretendServer(), PretendServer()]


async def serve(fleet: Fleet, version: int, folder: Path, adapter: str) -> None:
    await fleet.stage(version, folder, adapter=adapter)
    await fleet.probe(IDS)
    await fleet.promote()


async def heard(fleet: Fleet, adapter: str, prompt: tuple[int, ...] = PROMPT) -> set[int]:
    return set((await say(fleet, ask(prompt, adapter=adapter))).versions)


async def test_every_server_has_it_and_the_same_prompt_of_two_people_is_two_conversations(
    base: Path, versions: list[Path], servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        await serve(fleet, 11, versions[0], ANN)
        await serve(fleet, 12, versions[1], BOB)
        assert [sorted(each.adapters.values()) for each in servers] == [sorted(versions[:2])] * 2
        assert [await heard(fleet, whose) for whose in (ANN, BOB, "shared", ANN)] == [{11}, {12}, {0}, {11}]
        assert [len(each.asked) for each in servers] == [3, 1]


async def test_a_server_that_was_away_gets_what_it_missed_of_everybody(
    base: Path, versions: list[Path], servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        await serve(fleet, 11, versions[0], ANN)
        servers[0].up = False
        await until(lambda: fleet.reduced)
        await serve(fleet, 12, versions[1], ANN)
        await serve(fleet, 13, versions[2], BOB)
        servers[0].restart()
        await until(lambda: sorted(servers[0].adapters.values()) == sorted(versions[1:3]))
        servers[1].up = False
        await until(lambda: fleet.reduced)
        assert await heard(fleet, ANN) == {12}
        assert await heard(fleet, BOB) == {13}


async def test_what_was_unloaded_while_a_server_was_away_does_not_come_back_with_it(
    base: Path, versions: list[Path], servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        await serve(fleet, 11, versions[0], ANN)
        assert await heard(fleet, ANN) == {11}
        servers[0].up = False
        await until(lambda: fleet.reduced)
        await fleet.unload(ANN)
        assert fleet.live(ANN) is None
        servers[0].restart()
        await until(lambda: fleet.reduced is None)
        assert await heard(fleet, ANN) == {0}
        assert servers[0].adapters == {}
        await serve(fleet, 10, versions[1], ANN)  # an older one, if the newest is damaged
        assert await heard(fleet, ANN) == {10}


async def test_a_server_that_does_not_take_one_persons_weights_serves_the_others(
    base: Path, versions: list[Path], servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        await serve(fleet, 11, versions[0], BOB)
        servers[1].forgetful = True
        await serve(fleet, 12, versions[1], ANN)
        assert fleet.reduced is None
        for number in range(3):
            assert await heard(fleet, ANN, (number, *PROMPT)) == {12}
        assert not servers[1].asked
        assert await heard(fleet, BOB, (7, *PROMPT)) == {11}
        assert len(servers[1].asked) == 1


async def test_what_the_first_server_refuses_is_refused_by_the_fleet(
    base: Path, versions: list[Path], servers: list[PretendServer]
) -> None:
    async with fleet_over(servers, base) as fleet:
        servers[0].refuses = {versions[0]}
        with pytest.raises(EngineError, match="does not fit"):
            await fleet.stage(11, versions[0], adapter=ANN)
        assert fleet.live(ANN) is None


@pytest.mark.parametrize("deaths", [6, pytest.param(30, marks=pytest.mark.slow)])
async def test_in_many_deaths_of_each_server_nobody_hears_another_persons_version(
    base: Path, versions: list[Path], servers: list[PretendServer], deaths: int
) -> None:
    """They die in turn in the middle of responses, while versions of one person after the other come.

    Between two deaths a server gets as many requests as there are sessions, so that no response is given up.
    """
    people, done = (ANN, BOB, "shared"), asyncio.Event()
    owner, said_to = dict[int, str](), {person: list[int]() for person in people}

    async def session(person: str) -> None:
        while not done.is_set():
            said = await say(fleet, ask(PROMPT, adapter=person, max_tokens=20, ignore_eos=True))
            assert said.ids == tuple(range(40, 60))
            said_to[person].extend(said.versions)

    async def storm() -> None:
        for death in range(2 * deaths):
            server, person = servers[death % 2], people[death % 3]
            asked = len(server.asked)
            await until(lambda server=server, asked=asked: len(server.asked) > asked + 9)
            server.up = False
            await until(lambda: fleet.reduced)
            owner[death + 1] = person
            await serve(fleet, death + 1, versions[death % 3], person)
            server.restart()
            await until(lambda: fleet.reduced is None)
        for person in people:
            await until(lambda person=person: said_to[person][-1:] == [fleet.live(person)])
        done.set()

    async with fleet_over(servers, base) as fleet:
        async with asyncio.timeout(300):
            await asyncio.gather(*(session(person) for person in people * 3), storm())
    for person, numbers in said_to.items():
        assert {owner[number] for number in numbers if number} == {person}
