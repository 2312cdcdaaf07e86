"""The adapters in the engine: those that were used last, and every one that is in use."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from afterwit.engines.port import Weights
from afterwit.errors import EngineError
from afterwit.publish.publisher import OwnAdapters, Publisher
from afterwit.version import Origin, Probe, Version
from tests.engines.server.pretend import until
from tests.engines.talk import ask, say
from tests.fakes.engine import FakeEngine
from tests.publish.test_publish import MemoryCheckpoints

PEOPLE = {f"key:{name}": number for number, name in enumerate(("ann", "bob", "eve"), start=1)}


class Memory(MemoryCheckpoints):
    """Versions of one adapter, with a folder that the fake engine takes."""

    folder = Path()

    def weights(self, number: int) -> Path:
        return self.folder


@dataclass
class House:
    """An engine that has room for two of three people."""

    folder: Path
    engine: FakeEngine = field(
        default_factory=lambda: FakeEngine(lambda request: range(10, 14), end_id=2, vocabulary=99)
    )
    now: float = 0.0
    checkpoints: dict[str, Memory] = field(default_factory=dict)
    published: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "config.json").write_text("{}")
        for adapter, number in PEOPLE.items():
            self.put(adapter, number)
        self.own = OwnAdapters(
            self.engine, self._publisher, self._chains, most=2, idle_s=100.0, now=lambda: self.now
        )

    def _chains(self) -> dict[str, list[int]]:
        return {adapter: [0, *made.numbers()] for adapter, made in self.checkpoints.items()}

    def put(self, adapter: str, number: int, *, logprob: float = -0.5, parent: int = 0) -> None:
        made = self.checkpoints.setdefault(adapter, Memory())
        made.folder = self.folder
        probe = Probe(ids=(1, 2), logprobs=(logprob,))
        made.put(Version(number=number, parent=parent, origin=Origin.UPDATE, created=0.0, probe=probe))

    def _publisher(self, adapter: str) -> Publisher:
        async def published(number: int) -> None:
            self.published.append(number)

        return Publisher(
            engine=self.engine,
            checkpoints=self.checkpoints[adapter],
            published=published,
            dtype="float32",
            keep_versions=5,
            adapter=adapter,
        )

    async def version(self, adapter: str) -> int:
        (version,) = set((await say(self.own, ask((1,), adapter=adapter))).versions)
        return version


@pytest.fixture
async def house(tmp_path: Path) -> House:
    made = House(tmp_path)
    await made.own.step()
    return made


async def test_an_adapter_is_probed_and_loaded_when_it_is_asked_for(house: House) -> None:
    assert house.own.loaded == []
    assert await house.version("key:ann") == 1
    assert (house.own.loaded, house.published) == (["key:ann"], [1])
    assert await house.version("key:new") == 0
    assert await house.version("shared") == house.engine.version
    base = await say(house.own, ask((1,), adapter="key:bob", weights=Weights.BASE))
    assert set(base.versions) == {0}
    assert house.own.loaded == ["key:ann"]


async def test_the_one_that_was_used_least_lately_makes_room(house: House) -> None:
    for adapter in ("key:ann", "key:bob", "key:ann", "key:eve"):
        assert await house.version(adapter) == PEOPLE[adapter]
    assert house.own.loaded == ["key:ann", "key:eve"]


async def test_an_adapter_that_was_unloaded_is_served_again(house: House) -> None:
    """Its answers to the probe are those that it gave before, although no other weights are served."""
    house.put("key:ann", 1, logprob=-0.7)
    house.put("key:ann", 4, parent=1)
    await house.own.step()
    said = [await house.version(adapter) for adapter in ("key:ann", "key:bob", "key:eve", "key:ann")]
    assert said == [4, 2, 3, 4]


async def test_what_responses_use_stays_and_a_third_person_waits(house: House) -> None:
    house.engine.pause_after = 0
    held = [house.own.generate(ask((1,), adapter=adapter)) for adapter in ("key:ann", "key:bob")]
    begun = [asyncio.ensure_future(anext(each)) for each in held]
    await until(lambda: house.own.loaded == ["key:ann", "key:bob"])
    third = asyncio.ensure_future(house.version("key:eve"))
    await house.own.step()
    assert house.own.loaded == ["key:ann", "key:bob"]
    house.engine.resume.set()
    assert [(await each).versions for each in begun] == [(1,), (2,)]
    assert not third.done()
    await held[0].aclose()
    assert await third == 3
    assert house.own.loaded == ["key:bob", "key:eve"]
    await held[1].aclose()


async def test_those_that_are_loaded_get_their_newer_versions(house: House) -> None:
    await house.version("key:ann")
    house.put("key:ann", 7)
    house.put("key:bob", 8)
    assert await house.own.step()
    assert (house.engine.live("key:ann"), house.engine.live("key:bob")) == (7, None)
    assert not await house.own.step()
    assert await house.version("key:bob") == 8


async def test_one_that_is_idle_is_unloaded_and_comes_back(house: House) -> None:
    await house.version("key:ann")
    house.now = 101.0
    assert await house.own.step()
    assert house.own.loaded == []
    assert await house.version("key:ann") == 1


async def test_a_version_that_fails_its_probe_is_not_served_and_an_older_one_is(house: House) -> None:
    house.put("key:ann", 7, logprob=-3.0)
    assert await house.version("key:ann") == 1
    house.put("key:bob", 8, logprob=-3.0)
    house.checkpoints["key:bob"].gone.add(2)
    assert await house.version("key:bob") == 0


async def test_a_request_that_comes_while_its_adapter_is_unloaded_gets_it_again(house: House) -> None:
    await house.version("key:ann")
    unloading, go_on = asyncio.Event(), asyncio.Event()
    unload = house.engine.unload

    async def slowly(adapter: str) -> None:
        unloading.set()
        await go_on.wait()
        await unload(adapter)

    house.engine.unload = slowly  # type: ignore[method-assign]
    house.now = 101.0
    step = asyncio.ensure_future(house.own.step())
    await unloading.wait()
    asked = asyncio.ensure_future(house.version("key:ann"))
    await asyncio.sleep(0)
    go_on.set()
    await step
    assert await asked == 1


async def test_a_response_that_fails_or_is_left_holds_nothing(house: House) -> None:
    house.engine.fail_after = 1
    with pytest.raises(EngineError):
        await say(house.own, ask((1,), adapter="key:ann"))
    house.engine.fail_after = None
    async with aclosing(house.own.generate(ask((1,), adapter="key:ann"))) as steps:
        await anext(steps)
    for adapter in ("key:bob", "key:eve"):
        assert await house.version(adapter) == PEOPLE[adapter]
