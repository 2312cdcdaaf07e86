"""A real SGLang server: what it samples, swaps under load, and what happens when it dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch

from afterwit.engines.kinds import open_engine
from afterwit.engines.port import Engine, Weights
from afterwit.engines.server.settings import SglangSettings, Swap
from afterwit.errors import EngineUnavailable, SettingError
from afterwit.turn import Basis
from tests.engines.sglang.servers import bare, full, opened
from tests.engines.talk import ask, plain_logits, rescored, say, swapped_under_load
from tests.engines.teaching import teaches_as
from tests.servers.server import START_S, Servers

pytestmark = [pytest.mark.engines, pytest.mark.slow]
PROMPT = tuple(range(3, 40))
IDS = tuple(range(10, 40))
LONG = 300


@pytest.fixture(params=["adapters", "whole"])
def swap(request: pytest.FixtureRequest) -> Swap:
    way: Swap = request.param
    return way


@pytest.fixture
async def engine(servers: Servers, qwen: Path, swap: Swap) -> AsyncIterator[Engine]:
    async with opened(servers, qwen, swap=swap, patience_s=START_S) as engine:
        yield engine


@pytest.fixture
def newer(swap: Swap, adapters: list[Path], qwen: Path, newer_qwen: Path) -> list[Path]:
    """Two versions, the second with other weights again."""
    return adapters if swap == "adapters" else [newer_qwen, qwen]


@pytest.mark.parametrize("temperature", [0.5, 1.0])
async def test_log_probs_are_of_the_distribution_that_was_sampled(
    engine: Engine, qwen: Path, temperature: float
) -> None:
    request = ask(PROMPT, max_tokens=20, ignore_eos=True, temperature=temperature)
    said = await say(engine, request)
    assert engine.capabilities.basis is Basis.PROCESSED
    wanted = rescored(qwen, request, said, temperature)
    torch.testing.assert_close(torch.tensor(said.logprobs), wanted, atol=1e-4, rtol=0)


async def test_after_truncation_the_log_probs_are_renormalised(engine: Engine, qwen: Path) -> None:
    request = ask(PROMPT, max_tokens=20, ignore_eos=True, temperature=0.7, top_k=5)
    said = await say(engine, request)
    logits_TV = plain_logits(qwen, (*PROMPT, *said.ids))[len(PROMPT) - 1 : -1] / 0.7
    kept_TK, ids_TK = logits_TV.topk(5)
    mine_TK = ids_TK == torch.tensor(said.ids)[:, None]
    assert mine_TK.sum(-1).tolist() == [1] * 20
    wanted_T = kept_TK.log_softmax(-1)[mine_TK]
    torch.testing.assert_close(torch.tensor(said.logprobs), wanted_T, atol=1e-4, rtol=0)


async def test_it_teaches_as_a_plain_forward_does(servers: Servers, qwen: Path) -> None:
    await teaches_as(servers.get(full(qwen)).url, qwen, given=True)


async def test_swaps_under_load_fail_no_response(engine: Engine, swap: Swap, newer: list[Path]) -> None:
    requests = [ask(PROMPT[: 20 + n], max_tokens=LONG, ignore_eos=True) for n in range(4)]
    responses = await swapped_under_load(engine, requests, newer)
    for steps in responses:
        versions = [version for step in steps for version in step.versions]
        assert len(versions) == LONG
        assert versions == sorted(versions)
        assert all(step.cache_version == version for step in steps for version in step.versions)
        assert swap == "whole" or len(set(versions)) == 1, "a response ends with the adapter it began with"
    assert {version for steps in responses for step in steps for version in step.versions} == {0, 1, 2}


async def test_a_server_that_dies_is_waited_for_and_serves_the_version_it_served(
    engine: Engine, newer: list[Path], servers: Servers, qwen: Path
) -> None:
    await engine.stage(3, newer[0])
    before = await engine.probe(IDS)
    await engine.promote()
    server, seen = servers.get(full(qwen)), asyncio.Event()

    async def respond() -> list[int]:
        versions: list[int] = []
        async for step in engine.generate(ask(PROMPT, max_tokens=LONG, ignore_eos=True)):
            versions += step.versions
            if len(versions) > 5:
                seen.set()
        return versions

    responses = [asyncio.create_task(respond()) for _ in range(3)]
    await seen.wait()
    await asyncio.to_thread(server.kill)
    late = asyncio.create_task(respond())
    await asyncio.to_thread(server.start)
    assert [len(set(versions)) for versions in await asyncio.gather(*responses, late)] == [1] * 4
    assert responses[0].result() == [3] * LONG
    assert engine.fault is None
    await engine.stage(4, newer[0])
    assert await engine.probe(IDS) == pytest.approx(before, abs=1e-5)


async def test_a_server_that_stays_away_costs_the_patience_and_is_named(servers: Servers, qwen: Path) -> None:
    async with opened(servers, qwen, swap="adapters", patience_s=8.0) as engine:
        await asyncio.to_thread(servers.get(full(qwen)).kill)
        with pytest.raises(EngineUnavailable):
            await say(engine, ask(PROMPT, max_tokens=4))
        assert engine.fault is not None
        assert "cannot be reached" in engine.fault


async def test_a_server_without_our_flags_is_refused_for_adapters_and_serves_whole_weights(
    servers: Servers, qwen: Path, newer_qwen: Path
) -> None:
    server = servers.get(bare(qwen))
    with pytest.raises(
        SettingError, match="--enable-lora --max-lora-rank 16 --lora-target-modules down_proj"
    ):
        await open_engine(qwen, SglangSettings(url=server.url))
    engine = await open_engine(qwen, SglangSettings(url=server.url, swap="whole"))
    await engine.stage(1, newer_qwen)
    await engine.promote()
    said = await say(engine, ask(PROMPT, max_tokens=20, ignore_eos=True, weights=Weights.LIVE))
    assert said.versions == (1,) * 20
    wanted = rescored(newer_qwen, ask(PROMPT), said, 1.0)
    torch.testing.assert_close(torch.tensor(said.logprobs), wanted, atol=1e-4, rtol=0)
    await engine.close()


async def test_a_server_of_another_model_is_refused(servers: Servers, qwen: Path, llama: Path) -> None:
    server = servers.get(bare(qwen))
    with pytest.raises(SettingError, match="start both with the same model"):
        await open_engine(llama, SglangSettings(url=server.url, swap="whole"))
