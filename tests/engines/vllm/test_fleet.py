"""Two real vLLM servers behind one gateway: one is late, one is killed and comes back, the other dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from afterwit.engines.kinds import open_engine
from afterwit.engines.server.settings import VllmSettings
from tests.engines.talk import Said, ask, say
from tests.engines.vllm.servers import full
from tests.fakes.adapters import logprobs_by_peft
from tests.servers.install import environment_of
from tests.servers.server import START_S, Server

pytestmark = [pytest.mark.engines, pytest.mark.slow]
IDS = tuple(range(10, 70))
SESSIONS = range(30, 34)
"""The first id of each session's prompt: no prompt begins like another."""


@pytest.fixture
def two(qwen: Path, tmp_path: Path) -> Iterator[list[Server]]:
    try:
        environment_of("vllm")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    servers = [Server(full(qwen), tmp_path / f"{name}.log") for name in ("one", "two")]
    yield servers
    for server in servers:
        server.end()


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - servers come and go by themselves
        await asyncio.sleep(0.1)


async def test_killed_servers_of_a_fleet_fail_no_response_and_come_back_with_the_live_version(
    two: list[Server], qwen: Path, adapters: list[Path]
) -> None:
    first, second = two
    await asyncio.to_thread(first.start)
    engine = await open_engine(qwen, VllmSettings(url=(first.url, second.url), patience_s=START_S))
    done, responses = asyncio.Event(), list[tuple[range, Said]]()

    async def session(begin: int) -> None:
        prompt = range(begin, begin + 20)
        while not done.is_set():
            responses.append((prompt, await say(engine, ask(prompt, max_tokens=60, ignore_eos=True))))

    async def more() -> None:
        """Wait for responses that began after this call."""
        wanted = len(responses) + 2 * len(SESSIONS)
        await until(lambda: len(responses) >= wanted)

    try:
        assert engine.reduced is not None
        assert second.url in engine.reduced
        await engine.stage(1, adapters[0])
        await engine.probe(IDS)
        await engine.promote()
        await asyncio.to_thread(second.start)
        await until(lambda: engine.reduced is None)
        async with asyncio.TaskGroup() as sessions:
            for begin in SESSIONS:
                sessions.create_task(session(begin))
            await more()
            await asyncio.to_thread(first.kill)
            await until(lambda: engine.reduced is not None)
            await more()
            await asyncio.to_thread(first.start)
            await until(lambda: engine.reduced is None)
            await asyncio.to_thread(second.kill)
            await more()
            done.set()
    finally:
        await engine.close()
    for prompt, said in responses:
        scored = logprobs_by_peft(qwen, adapters[0], [*prompt, *said.ids])[-60:]
        assert said.versions == (1,) * 60
        assert said.logprobs == pytest.approx(scored, abs=1e-4)
