"""A fleet consists of servers of one model, found at the addresses of `engine.url`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from afterwit.config import load
from afterwit.engines.kinds import open_engine
from afterwit.engines.server.fleet import Fleet, shared
from afterwit.engines.server.replica import Replica
from afterwit.engines.server.settings import VllmSettings
from afterwit.errors import SettingError
from afterwit.turn import Basis
from tests.engines.server.pretend import PretendServer, replica_over
from tests.engines.vllm.recorded import Recorded, listening
from tests.fakes.models import tiny_llama


async def test_addresses_of_one_model_become_one_engine(qwen: Path) -> None:
    async with listening(Recorded(qwen)) as one, listening(Recorded(qwen)) as two:
        engine = await open_engine(qwen, VllmSettings(url=(one, two)))
        assert isinstance(engine, Fleet)
        assert engine.fault is engine.reduced is None
        await engine.close()


async def test_another_model_at_one_address_is_refused_with_the_address(qwen: Path, tmp_path: Path) -> None:
    other = tiny_llama(tmp_path / "other")
    async with listening(Recorded(qwen)) as one, listening(Recorded(other)) as two:
        with pytest.raises(SettingError, match=two):
            await open_engine(qwen, VllmSettings(url=(one, two)))


async def test_one_address_of_two_is_enough_to_begin_with(qwen: Path) -> None:
    async with listening(Recorded(qwen)) as one:
        async with listening(Recorded(qwen)) as two:
            pass
        engine = await open_engine(qwen, VllmSettings(url=(one, two), patience_s=0.1))
        assert engine.fault is None
        assert engine.reduced == f"1 of 2 servers are out: {two}: it has not answered yet"
        await engine.close()


async def test_addresses_where_nobody_answers_are_refused_with_the_first(qwen: Path) -> None:
    async with listening(Recorded(qwen)) as one, listening(Recorded(qwen)) as two:
        pass
    with pytest.raises(SettingError, match=one):
        await open_engine(qwen, VllmSettings(url=(one, two), patience_s=0.1))


async def test_another_model_is_refused_though_nobody_answers_elsewhere(qwen: Path, tmp_path: Path) -> None:
    other = tiny_llama(tmp_path / "other")
    async with listening(Recorded(other)) as one:
        async with listening(Recorded(qwen)) as two:
            pass
        with pytest.raises(SettingError, match=one):
            await open_engine(qwen, VllmSettings(url=(one, two), patience_s=60.0))


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        ({"fingerprint": "other"}, "fingerprint is pretend at a, but other at b"),
        ({"dtype": "bfloat16"}, "dtype is float32 at a, but bfloat16 at b"),
        ({"vocabulary": 90}, "vocabulary is 100 at a, but 90 at b"),
    ],
)
async def test_servers_of_different_models_are_refused_by_name(
    base: Path, differs: dict[str, Any], said: str
) -> None:
    one, two = await two_over(PretendServer(), PretendServer(), base)
    two.facts = replace(two.facts, **differs)
    with pytest.raises(SettingError, match=said):
        shared([one, two])


async def test_servers_of_different_weights_are_refused_by_name(base: Path) -> None:
    other = PretendServer()
    other.forgetful = True
    with pytest.raises(SettingError, match=r"do not serve the same weights.* a and b differ by 1"):
        shared(await two_over(PretendServer(), other, base))


async def test_a_fleet_can_what_all_can(base: Path) -> None:
    one, two = await two_over(PretendServer(), PretendServer(), base)
    one.capabilities = replace(one.capabilities, constraint=True, scored_ids=5, longest_probe=None)
    two.capabilities = replace(two.capabilities, base_weights=False, top_logprobs=7, longest_probe=50)
    two.facts = replace(two.facts, context_length=150)
    facts, can = shared([one, two])
    assert (can.constraint, can.base_weights, can.adapters) == (False, False, True)
    assert (can.scored_ids, can.top_logprobs, can.longest_probe) == (5, 0, 50)
    assert facts.context_length == 150
    two.capabilities = replace(two.capabilities, basis=Basis.RAW)
    with pytest.raises(SettingError, match=r"at a, but .* at b: start the servers"):
        shared([one, two])


async def two_over(one: PretendServer, two: PretendServer, base: Path) -> list[Replica]:
    return [await replica_over(one, base), await replica_over(two, base, name="b")]


def test_addresses_come_from_a_list_in_any_source(tmp_path: Path) -> None:
    pairs = ["engine.kind=vllm", 'engine.url=["http://a:1", "http://b:1"]']
    engine = load(home=tmp_path, pairs=pairs, environment={}).engine
    assert isinstance(engine, VllmSettings)
    assert engine.urls == ("http://a:1", "http://b:1")


@pytest.mark.parametrize("url", [(), ("http://a:1", "http://a:1/"), ("http://a:1", "b")])
def test_addresses_that_cannot_be_a_fleet_are_refused(url: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="url is"):
        VllmSettings(url=url)
