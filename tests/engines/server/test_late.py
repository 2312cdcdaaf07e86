"""A fleet begins with one server down: it joins once it answers, if it matches the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from afterwit.engines.port import Capabilities, Facts
from afterwit.engines.server.fleet import Fleet
from afterwit.engines.server.replica import Replica
from afterwit.errors import NobodyAnswers
from tests.engines.server.pretend import CAPABILITIES, FACTS, PretendServer, replica_over, until
from tests.engines.talk import ask, say

PROMPT = tuple(range(3, 43))
IDS = tuple(range(5))


class Coming:
    """Opens an engine over a server that may be down."""

    def __init__(self, base: Path, server: PretendServer) -> None:
        self.base, self.server = base, server
        self.facts: Facts = FACTS
        self.can: Capabilities = CAPABILITIES
        self.replica: Replica | None = None

    async def __call__(self) -> Replica:
        await until(lambda: self.server.up)
        self.replica = await replica_over(
            self.server, self.base, name="b", facts=self.facts, capabilities=self.can
        )
        return self.replica


@asynccontextmanager
async def fleet_of(one: PretendServer, two: Coming) -> AsyncIterator[Fleet]:
    first = await replica_over(one, two.base)
    fleet = Fleet([first], {"b": two}, patience_s=60.0, watch_s=0.001)
    try:
        yield fleet
    finally:
        await fleet.close()


async def test_it_joins_with_the_version_that_is_live(base: Path, versions: list[Path]) -> None:
    first, second = PretendServer(), PretendServer()
    second.up = False
    async with fleet_of(first, Coming(base, second)) as fleet:
        assert fleet.fault is None
        assert fleet.reduced == "1 of 2 servers are out: b: it has not answered yet"
        await fleet.stage(1, versions[0])
        await fleet.probe(IDS)
        await fleet.promote()
        second.up = True
        await until(lambda: fleet.reduced is None)
        first.up = False
        await until(lambda: fleet.reduced)
        assert set((await say(fleet, ask(PROMPT))).versions) == {1}
        assert list(second.adapters.values()) == [versions[0]]


async def test_it_takes_part_in_the_next_swap(base: Path, versions: list[Path]) -> None:
    second = PretendServer()
    async with fleet_of(PretendServer(), Coming(base, second)) as fleet:
        await until(lambda: fleet.reduced is None)
        await fleet.stage(1, versions[0])
        await fleet.probe(IDS)
        await fleet.promote()
        assert list(second.adapters.values()) == [versions[0]]


@pytest.mark.parametrize(
    ("facts", "can", "said"),
    [
        ({"fingerprint": "other"}, {}, "fingerprint is pretend at a, but other at b"),
        ({"context_length": 150}, {}, "the context of b is 150 ids, but the fleet began with 200"),
        ({}, {"scored_ids": 5}, "b supports less than the fleet began with (scored_ids)"),
        ({}, {"longest_probe": 100}, "b supports less than the fleet began with (longest_probe)"),
        ({}, {"base_weights": False}, "b supports less than the fleet began with (base_weights)"),
    ],
)
async def test_one_that_is_not_as_the_others_stays_out_with_the_reason(
    base: Path, facts: dict[str, object], can: dict[str, object], said: str
) -> None:
    coming = Coming(base, PretendServer())
    coming.facts, coming.can = replace(FACTS, **facts), replace(CAPABILITIES, **can)  # type: ignore[arg-type]
    async with fleet_of(PretendServer(), coming) as fleet:
        await until(lambda: said in (fleet.reduced or ""))
        assert coming.replica is not None
        assert coming.replica.fault == "The engine was closed."
        assert len((await say(fleet, ask(PROMPT))).ids) == 24


async def test_one_that_can_more_joins(base: Path) -> None:
    coming = Coming(base, PretendServer())
    coming.facts, coming.can = replace(FACTS, context_length=300), replace(CAPABILITIES, scored_ids=50)
    async with fleet_of(PretendServer(), coming) as fleet:
        await until(lambda: fleet.reduced is None)
        assert (fleet.facts.context_length, fleet.capabilities.scored_ids) == (200, 20)


async def test_it_is_waited_for_again_and_again(base: Path) -> None:
    tries = 0

    async def never() -> Replica:
        nonlocal tries
        tries += 1
        await asyncio.sleep(0)
        raise NobodyAnswers("nobody")

    one = await replica_over(PretendServer(), base)
    fleet = Fleet([one], {"b": never}, patience_s=60.0, watch_s=0.001)
    await until(lambda: tries > 3)
    assert fleet.reduced == "1 of 2 servers are out: b: it has not answered yet"
    await fleet.close()
