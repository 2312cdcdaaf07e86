"""A real vLLM server: its numbers are the model's, and clients notice neither swaps nor its death."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
import torch

from afterwit.engines.kinds import open_engine
from afterwit.engines.port import Engine, Weights
from afterwit.engines.server.settings import Swap, VllmSettings
from afterwit.engines.vllm.server import environment, flags
from afterwit.errors import EngineError, SettingError
from afterwit.turn import Basis
from tests.engines.talk import ask, plain_logits, rescored, say, swapped_under_load
from tests.engines.teaching import teacher_at, teaches_as
from tests.engines.vllm.servers import RANK, full, opened, running
from tests.fakes.adapters import logprobs_by_peft, noise
from tests.fakes.models import tiny_llama
from tests.servers.server import Launch, Servers
from tests.shells.running.several_learners import taught_by_a_server

pytestmark = [pytest.mark.engines, pytest.mark.slow]
IDS = tuple(range(10, 70))
PROMPT = range(3, 40)
LOAD = [ask(PROMPT, max_tokens=60, ignore_eos=True)] * 6


def of_folder(folder: Path, ids: Sequence[int]) -> list[float]:
    """Log-probs of ids[1:], by transformers."""
    logprobs_TV = plain_logits(folder, ids)[:-1].log_softmax(-1)
    return logprobs_TV.gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()


async def until_served_again(engine: Engine) -> None:
    while engine.fault is not None:  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0.2)


async def test_log_probs_are_those_of_the_distribution_that_was_sampled_from(
    servers: Servers, qwen: Path
) -> None:
    request = ask(PROMPT, max_tokens=12, temperature=0.6, ignore_eos=True)
    async with opened(servers, qwen, swap="adapters") as engine:
        assert engine.capabilities.basis is Basis.PROCESSED
        said = await say(engine, request)
    assert said.logprobs == pytest.approx(rescored(qwen, request, said, 0.6).tolist(), abs=1e-4)


async def test_an_adapter_answers_as_peft_does_and_the_base_beside_it_as_before(
    servers: Servers, qwen: Path, adapters: list[Path]
) -> None:
    async with opened(servers, qwen, swap="adapters") as engine:
        await engine.stage(1, adapters[0])
        assert await engine.probe(IDS) == pytest.approx(logprobs_by_peft(qwen, adapters[0], IDS), abs=1e-4)
        await engine.promote()
        live, base = (ask(PROMPT, max_tokens=12, ignore_eos=True, weights=weights) for weights in Weights)
        said, of_base = await say(engine, live), await say(engine, base)
    expected = logprobs_by_peft(qwen, adapters[0], [*PROMPT, *said.ids])[-len(said.ids) :]
    assert said.logprobs == pytest.approx(expected, abs=1e-4)
    assert of_base.logprobs == pytest.approx(rescored(qwen, base, of_base, 1.0).tolist(), abs=1e-4)
    assert (set(said.versions), set(of_base.versions)) == ({1}, {0})


async def test_whole_weights_answer_as_the_folder_they_came_from(
    servers: Servers, qwen: Path, newer_qwen: Path
) -> None:
    async with opened(servers, qwen, swap="whole") as engine:
        before = await say(engine, ask(PROMPT, max_tokens=3, ignore_eos=True))
        await engine.stage(1, newer_qwen)
        assert await engine.probe(IDS) == pytest.approx(of_folder(newer_qwen, IDS), abs=1e-4)
        await engine.promote()
        request = ask((*PROMPT, *before.ids), max_tokens=12, ignore_eos=True)
        said = await say(engine, request)
        await engine.stage(2, qwen)
        assert await engine.probe(IDS) == pytest.approx(of_folder(qwen, IDS), abs=1e-4)
    assert said.logprobs == pytest.approx(rescored(newer_qwen, request, said, 1.0).tolist(), abs=1e-4)


async def test_the_same_seed_draws_the_same_ids(servers: Servers, qwen: Path) -> None:
    async with opened(servers, qwen, swap="adapters") as engine:
        request = ask(PROMPT, max_tokens=12, seed=5, ignore_eos=True)
        first, again = [(await say(engine, request)).ids for _ in range(2)]
        other = (await say(engine, ask(PROMPT, max_tokens=12, seed=6, ignore_eos=True))).ids
    assert first == again != other


async def test_it_teaches_as_a_plain_forward_does_and_names_the_flag_for_more_ids(
    servers: Servers, qwen: Path
) -> None:
    server = running(servers, full(qwen))
    await teaches_as(server.url, qwen)
    with pytest.raises(SettingError, match="--max-logprobs 50 or more"):
        await asyncio.to_thread(teacher_at(server.url, qwen, k=50).open)


@pytest.mark.parametrize("swap", ["adapters", "whole"])
async def test_under_load_every_response_is_whole_through_five_swaps_and_every_token_is_of_its_version(
    servers: Servers, qwen: Path, newer_qwen: Path, adapters: list[Path], swap: Swap
) -> None:
    folders = adapters if swap == "adapters" else [newer_qwen, qwen]
    async with opened(servers, qwen, swap=swap) as engine:
        responses = await swapped_under_load(engine, LOAD, [folders[n % 2] for n in range(5)])
    for steps in responses:
        versions = [version for step in steps for version in step.versions]
        assert len(versions) == 60
        assert versions == sorted(versions)
        assert swap == "whole" or len(set(versions)) == 1
    assert {version for steps in responses for step in steps for version in step.versions} == set(range(6))
    for steps in responses[-3:]:
        version, ids = steps[-1].versions[-1], [*PROMPT, *(index for step in steps for index in step.ids)]
        folder = folders[(version - 1) % 2]
        scored = logprobs_by_peft(qwen, folder, ids) if swap == "adapters" else of_folder(folder, ids)
        assert version > 0
        assert steps[-1].logprobs[-1] == pytest.approx(scored[-1], abs=1e-3)


async def test_a_learners_process_trains_by_what_it_teaches(
    servers: Servers, qwen: Path, tmp_path: Path
) -> None:
    server = running(servers, full(qwen))
    learned = await taught_by_a_server(server.url, qwen, tmp_path / "home", subset="overlap")
    assert learned == [f"turn{number:04d}" for number in range(4)]


@pytest.mark.parametrize("swap", ["adapters", "whole"])
async def test_a_killed_server_fails_no_request_and_comes_back_with_the_version_that_was_live(
    servers: Servers, qwen: Path, newer_qwen: Path, adapters: list[Path], swap: Swap
) -> None:
    server = running(servers, full(qwen))
    folder = adapters[0] if swap == "adapters" else newer_qwen
    async with opened(servers, qwen, swap=swap, patience_s=900.0) as engine:
        await engine.stage(1, folder)
        proof = await engine.probe(IDS)
        await engine.promote()
        async with aclosing(engine.generate(ask(PROMPT, max_tokens=200, ignore_eos=True))) as response:
            steps = [await anext(response)]
            await asyncio.to_thread(server.kill)
            waits = asyncio.create_task(say(engine, ask(PROMPT, max_tokens=8, ignore_eos=True)))
            while engine.fault is None:  # noqa: ASYNC110 - it looks once a second
                await asyncio.sleep(0.1)
            assert "cannot be reached" in engine.fault or "broke off" in engine.fault
            await asyncio.to_thread(server.start)
            steps += [step async for step in response]
        assert sum(len(step.ids) for step in steps) == 200
        said = await waits
        assert {version for step in steps for version in step.versions} == {1} == set(said.versions)
        await until_served_again(engine)
        await engine.stage(2, folder)
        assert await engine.probe(IDS) == pytest.approx(proof, abs=1e-4)


async def test_an_engine_core_that_dies_fails_no_request_of_those_under_way_and_after(
    servers: Servers, qwen: Path, adapters: list[Path]
) -> None:
    """The process that answers outlives it by some seconds, and has an error for everybody."""
    server = running(servers, full(qwen))
    async with opened(servers, qwen, swap="adapters", patience_s=900.0) as engine:
        await engine.stage(1, adapters[0])
        await engine.probe(IDS)
        await engine.promote()
        core = int(re.findall(r"\(EngineCore pid=(\d+)\)", server.log.read_text(errors="replace"))[-1])
        async with aclosing(engine.generate(LOAD[0])) as response:
            load = [asyncio.create_task(say(engine, each)) for each in LOAD]
            begun = [await anext(response)]
            os.kill(core, signal.SIGKILL)
            load += [asyncio.create_task(say(engine, each)) for each in LOAD]
            while engine.fault is None:  # noqa: ASYNC110 - a request finds it, or a look once a second
                await asyncio.sleep(0.1)
            await asyncio.to_thread(server.kill)  # it may never end by itself
            await asyncio.to_thread(server.start)
            begun += [step async for step in response]
        said = await asyncio.gather(*load)
    assert sum(len(step.ids) for step in begun) == 60
    assert [len(each.ids) for each in said] == [60] * len(load)
    assert {version for each in said for version in each.versions} == {1}


async def test_an_adapter_of_another_model_is_refused_and_serving_goes_on(
    servers: Servers, qwen: Path, tmp_path: Path
) -> None:
    strange = noise(tmp_path / "strange", tiny_llama(tmp_path / "llama", hidden_size=96), seed=1)
    async with opened(servers, qwen, swap="adapters") as engine:
        with pytest.raises(EngineError, match="does not fit the served model"):
            await engine.stage(1, strange)
        assert set((await say(engine, ask(PROMPT))).versions) == {0}


async def test_another_model_than_the_folders_is_refused_with_both(
    servers: Servers, qwen: Path, newer_qwen: Path, llama: Path
) -> None:
    server = running(servers, full(qwen))
    with pytest.raises(SettingError, match=f"serves {qwen}.*but the model here is {llama}"):
        await open_engine(llama, VllmSettings(url=server.url))


async def test_a_server_without_our_flags_is_refused_with_every_one_that_is_missing(
    servers: Servers, qwen: Path
) -> None:
    plain = running(servers, Launch(server="vllm", model=qwen))
    with pytest.raises(SettingError, match=r"--enable-scale-out; and --enable-lora.*RUNTIME_LORA_UPDATING=1"):
        await open_engine(qwen, VllmSettings(url=plain.url))
    whole = r"--enable-scale-out; and VLLM_SERVER_DEV_MODE=1.*; and --worker-extension-cls afterwit_vllm"
    with pytest.raises(SettingError, match=whole):
        await open_engine(qwen, VllmSettings(url=plain.url, swap="whole"))


async def test_raw_log_probs_are_recognised_and_recorded_as_such(servers: Servers, qwen: Path) -> None:
    settings = VllmSettings()
    launch = Launch(
        server="vllm",
        model=qwen,
        flags=(*flags(qwen, settings, lora_rank=RANK), "--logprobs-mode", "raw_logprobs"),
        environment=tuple(environment(settings).items()),
    )
    server = running(servers, launch)
    engine = await open_engine(qwen, VllmSettings(url=server.url))
    request = ask(PROMPT, max_tokens=12, temperature=0.6, ignore_eos=True)
    said = await say(engine, request)
    await engine.close()
    assert engine.capabilities.basis is Basis.RAW
    assert said.logprobs == pytest.approx(rescored(qwen, request, said, 1.0).tolist(), abs=1e-4)
