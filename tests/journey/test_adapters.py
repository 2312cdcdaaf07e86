"""People with an adapter each over one model: what one teaches reaches that one alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from openai import BadRequestError

from afterwit.checkpoints.versions import Versions
from afterwit.config import Settings
from afterwit.errors import SettingError
from afterwit.running.serve import Runtime
from tests.journey.conftest import PlainJudge, until
from tests.journey.people import Person, newer, person, trained

OWN = {
    "gateway": {"key_refresh_s": 0.05},
    "engine": {"prefix_cache_gib": 0.0},
    "learner": {"adapters": "per_key", "batch": 1, "min_batch": 1, "lora_rank": 4, "measure_effects": False},
    "publish": {"poll_s": 0.05, "adapters": 2},
}


@pytest.mark.slow  # a learner process, as `test_turn` has one
async def test_each_person_teaches_an_adapter_that_serves_nobody_else(
    settings: Callable[..., Settings], model: Path, tmp_path: Path
) -> None:
    own = settings(OWN | {"learner": OWN["learner"] | {"shared_keys": ["team"]}})
    async with Runtime(own, tmp_path, judge=PlainJudge()) as runtime:
        ann, bob, team = [await person(runtime, name) for name in ("ann", "bob", "team")]
        before = await ann.hears()
        assert before == await bob.hears() == await team.hears()
        turn = await ann.teach(1)
        await until(lambda: trained(runtime, [turn]))
        taught = await newer(ann, before[0])
        assert taught[1] != before[1]
        assert await bob.hears() == before
        assert await team.hears() == before
        turn = await team.teach(2)
        await until(lambda: trained(runtime, [turn]))
        assert (await newer(team, before[0]))[1] != before[1]
        assert await ann.hears() == taught
        assert await bob.hears() == before
        record = await runtime.store.call(lambda store: store.turn(turn))
        assert record.sampled_turn.adapter == "shared"
    versions = Versions(root=tmp_path / "versions", base=model)
    assert versions.chains() == {"key:ann": [0, 1], "shared": [0, 2]}
    async with Runtime(own, tmp_path, ("gateway",)) as again:
        assert again.url is not None
        ann = Person("ann", ann.agent.copy(base_url=again.url))
        assert await ann.hears() == taught


@pytest.mark.slow  # a learner process each, as above
async def test_a_group_of_sessions_has_an_adapter_within_its_key(
    settings: Callable[..., Settings], model: Path, tmp_path: Path
) -> None:
    grouped = OWN | {"learner": OWN["learner"] | {"adapters": "per_session_group"}}
    async with Runtime(settings(grouped), tmp_path, judge=PlainJudge()) as runtime:
        ann = await person(runtime, "ann")
        work, home = {"X-Session-Group": "work"}, {"X-Session-Group": "home"}
        turn = await ann.teach(1, work)
        await until(lambda: trained(runtime, [turn]))

        async def heard() -> bool | None:
            return (await ann.hears(work))[0] == "v1" or None

        await until(heard)
        assert (await ann.hears(home))[0] == (await ann.hears())[0] == "v0"
        record = await runtime.store.call(lambda store: store.turn(turn))
        assert record.sampled_turn.adapter == "group:ann/work"
        with pytest.raises(BadRequestError, match="1 to 64 letters"):
            await ann.hears({"X-Session-Group": "a/b"})


@pytest.mark.slow
async def test_an_adapter_is_loaded_when_it_is_asked_for_and_makes_room_for_others(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    async with Runtime(settings(OWN), tmp_path, judge=PlainJudge()) as runtime:
        people = [await person(runtime, f"p{number}") for number in range(4)]
        turns = [await someone.teach(number) for number, someone in enumerate(people)]
        await until(lambda: trained(runtime, turns))
        heard = {someone.name: await newer(someone, "v0") for someone in people}
        engine = runtime.engine
        assert engine is not None
        assert len({version for version, _ in heard.values()}) == 4
        assert engine.live("key:p0") is None
        assert await people[0].hears() == heard["p0"]
        together = await asyncio.gather(*(someone.hears() for someone in people))
        assert [version for version, _ in together] == [heard[someone.name][0] for someone in people]
        assert sum(engine.live(f"key:{someone.name}") is not None for someone in people) <= 2


async def test_what_cannot_have_adapters_of_its_own_is_refused_at_the_start(
    settings: Callable[..., Settings],
) -> None:
    with pytest.raises(SettingError, match="lora_rank is 0: whole weights are shared by all"):
        settings({"learner": {"adapters": "per_key", "lora_rank": 0}})


@pytest.mark.slow  # a hundred updates
async def test_a_hundred_people_on_one_server(
    settings: Callable[..., Settings], model: Path, tmp_path: Path
) -> None:
    own = settings(OWN | {"publish": {"poll_s": 0.2, "adapters": 8}})
    async with Runtime(own, tmp_path, judge=PlainJudge()) as runtime:
        people = [await person(runtime, f"p{number:03d}") for number in range(100)]
        before = await people[0].hears()
        turns = await asyncio.gather(*(someone.teach(1) for someone in people[:50]))
        await until(lambda: trained(runtime, list(turns)))
        taught = [await newer(someone, before[0]) for someone in people[:50]]
        assert all(logprobs != before[1] for _, logprobs in taught)
        untaught = await asyncio.gather(*(someone.hears() for someone in people[50:]))
        assert [version for version, _ in untaught] == ["v0"] * 50
        more = await asyncio.gather(*(someone.teach(1) for someone in people[50:]))
        await until(lambda: trained(runtime, list(more)))
        again = await asyncio.gather(*(someone.hears() for someone in people[:50]))
        assert [version for version, _ in again] == [version for version, _ in taught]
        engine = runtime.engine
        assert engine is not None
        assert sum(engine.live(f"key:p{number:03d}") is not None for number in range(100)) <= 8
    chains = Versions(root=tmp_path / "versions", base=model).chains()
    assert {adapter: len(chain) for adapter, chain in chains.items()} == {
        f"key:p{number:03d}": 2 for number in range(100)
    }
