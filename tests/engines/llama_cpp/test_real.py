"""A real llama-server: swaps under many streams, and processes that die."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch

from afterwit.chat_format.render import Renderer
from afterwit.engines.port import Engine, Step, Weights
from afterwit.errors import EngineError
from afterwit.turn import Basis
from tests.engines.llama_cpp.servers import opened
from tests.engines.talk import PROBE, ask, rescored, say
from tests.servers.server import START_S, Servers

pytestmark = [pytest.mark.engines, pytest.mark.slow]
PROMPT = tuple(range(3, 40))
STREAMS, VERSIONS = 32, 10


@pytest.fixture
async def engine(servers: Servers, qwen: Path) -> AsyncIterator[Engine]:
    async with opened(servers, qwen, patience_s=START_S) as engine:
        yield engine


@pytest.mark.parametrize("temperature", [0.5, 1.0])
async def test_log_probs_are_of_the_models_own_distribution(
    engine: Engine, qwen: Path, temperature: float
) -> None:
    """Whatever the temperature. Those of ids within a character are not reported, and never train."""
    request = ask(PROMPT, max_tokens=40, ignore_eos=True, temperature=temperature)
    said = await say(engine, request)
    assert engine.capabilities.basis is Basis.RAW
    scored = ~torch.tensor(said.forced)
    assert scored.sum() > 20
    torch.testing.assert_close(
        torch.tensor(said.logprobs)[scored], rescored(qwen, request, said, 1.0)[scored], atol=1e-4, rtol=0
    )


async def test_ten_versions_under_32_streams_fail_no_response(engine: Engine, adapters: list[Path]) -> None:
    over, versions = asyncio.Event(), set[int]()

    async def respond(place: int) -> None:
        while not over.is_set():
            steps: list[Step] = []
            async for step in engine.generate(ask(PROMPT[: 5 + place], max_tokens=20, ignore_eos=True)):
                steps.append(step)
            assert sum(len(step.ids) for step in steps) == 20
            (version,) = {version for step in steps for version in step.versions}
            versions.add(version)

    async def swap() -> None:
        for version in range(1, VERSIONS + 1):
            await engine.stage(version, adapters[version % 2])
            await engine.probe(PROBE)
            await engine.promote()
        over.set()

    await asyncio.gather(*map(respond, range(STREAMS)), swap())
    assert versions <= {*range(VERSIONS + 1)}
    assert len(versions) > VERSIONS // 2
    assert set((await say(engine, ask(PROMPT))).versions) == {engine.version} == {VERSIONS}


async def test_a_response_whose_limit_is_within_a_character_ends_before_it(
    engine: Engine, qwen: Path
) -> None:
    """The server reports no id of a byte that begins a character, and does again what it sampled greedily."""
    renderer = Renderer.load(qwen)
    bias = ((next(index for index in range(500) if renderer.spelled(index) == b"\xc3"), 100.0),)
    request = ask(PROMPT, max_tokens=3, temperature=0.0, logit_bias=bias, ignore_eos=True)
    steps = [step async for step in engine.generate(request)]
    assert (steps[-1].ended, sum(len(step.ids) for step in steps)) == ("length", 0)
    assert set((await say(engine, ask(PROMPT))).versions) == {0}, "the server is not away"


async def test_a_version_whose_process_is_killed_is_served_again(
    engine: Engine, adapters: list[Path]
) -> None:
    await engine.stage(3, adapters[0])
    before = await engine.probe(PROBE)
    await engine.promote()
    begun = asyncio.Event()

    async def respond() -> set[int]:
        versions: set[int] = set()
        async for step in engine.generate(ask(PROMPT, max_tokens=200, ignore_eos=True)):
            versions |= {*step.versions}
            begun.set()
        return versions

    running = asyncio.create_task(respond())
    await begun.wait()
    os.kill(_process_of(3), signal.SIGKILL)
    assert await running == {3}
    await engine.stage(4, adapters[0])
    assert await engine.probe(PROBE) == pytest.approx(before, abs=1e-5)


async def test_an_adapter_that_does_not_fit_is_refused_and_the_base_goes_on(
    engine: Engine, qwen: Path, tmp_path: Path, adapters: list[Path]
) -> None:
    for file in adapters[0].iterdir():
        content = file.read_bytes()
        (tmp_path / file.name).write_bytes(content[:-100] if file.suffix == ".safetensors" else content)
    with pytest.raises(EngineError, match="does not fit"):
        await engine.stage(1, tmp_path)
    request = ask(PROMPT, max_tokens=4, weights=Weights.LIVE)
    assert set((await say(engine, request)).versions) == {0}


def _process_of(version: int) -> int:
    """The process that was started with this version's adapter."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"llama-server") and any(
            f"afterwit-{version}-".encode() in each for each in words
        ):
            return int(folder.name)
    raise AssertionError(f"no process serves version {version}")
