"""Personal adapters, in every engine that has them."""

from __future__ import annotations

import asyncio

import pytest

from afterwit.engines.port import Engine, Weights
from tests.engines.contract.factories import Models
from tests.engines.talk import ask, say
from tests.fakes.engine import FakeEngine

PROMPT = range(3, 40)
ANN, BOB = "key:ann", "key:bob"


@pytest.fixture
def engine(engine: Engine) -> Engine:
    if not engine.capabilities.own_adapters:
        pytest.skip("this engine has the shared adapter alone")
    return engine


async def loaded(engine: Engine, models: Models, adapter: str, version: int) -> None:
    folder = models.newer if isinstance(engine, FakeEngine) else models.adapter
    await engine.stage(version, folder, adapter=adapter)
    await engine.promote()


async def test_an_adapter_answers_its_own_requests_and_nobody_elses(engine: Engine, models: Models) -> None:
    shared = engine.version
    await loaded(engine, models, ANN, 11)
    await loaded(engine, models, BOB, 12)
    asked = [
        ask(PROMPT, adapter=ANN),
        ask(PROMPT, adapter=BOB),
        ask(PROMPT),
        ask(PROMPT, adapter="key:new"),
        ask(PROMPT, adapter=ANN, weights=Weights.BASE),
    ]
    said = await asyncio.gather(*(say(engine, request) for request in asked))
    assert [set(each.versions) for each in said[:4]] == [{11}, {12}, {shared}, {0}]
    assert (engine.live(ANN), engine.live(BOB), engine.live("key:new")) == (11, 12, None)
    assert engine.live("shared") == engine.version == shared


async def test_a_newer_version_of_one_adapter_leaves_the_others(engine: Engine, models: Models) -> None:
    for version, adapter in ((11, ANN), (12, BOB), (13, ANN)):
        await loaded(engine, models, adapter, version)
    assert (engine.live(ANN), engine.live(BOB)) == (13, 12)


async def test_an_adapter_that_was_unloaded_can_come_back(engine: Engine, models: Models) -> None:
    await loaded(engine, models, ANN, 11)
    await engine.unload(ANN)
    assert engine.live(ANN) is None
    assert set((await say(engine, ask(PROMPT, adapter=ANN))).versions) == {0}
    await loaded(engine, models, ANN, 11)
    assert set((await say(engine, ask(PROMPT, adapter=ANN))).versions) == {11}
    await engine.unload("key:never")
