"""The whole service answered 503 while weights were swapped.

Here new weights come while requests stream over HTTP: no request is refused or cut, and every token has its
version.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import torch
from openai import AsyncOpenAI

from afterwit.checkpoints.versions import Versions
from afterwit.config import Settings
from afterwit.learning.models import load_model
from afterwit.learning.passes import probe
from afterwit.running.serve import Runtime
from afterwit.version import Origin, Version
from tests.fakes.models import reweighted
from tests.journey.conftest import _clients_are_closed as _clients_are_closed
from tests.journey.conftest import client, until


@pytest.mark.parametrize(
    ("streams", "swaps"), [(3, 1), pytest.param(200, 20, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
async def test_streams_live_through_swaps(
    settings: Callable[..., Settings], model: Path, tmp_path: Path, streams: int, swaps: int
) -> None:
    versions = Versions(root=tmp_path / "versions", base=model)
    write_version(versions, 0)
    chosen = settings({"publish": {"poll_s": 0.05}})
    async with Runtime(chosen, tmp_path, ("gateway",)) as runtime:
        assert runtime.url is not None
        agent = client(runtime.url)
        done = asyncio.Event()
        served: list[int] = []
        talking = [
            asyncio.create_task(keep_talking(agent, number, done, served)) for number in range(streams)
        ]
        knocking = asyncio.create_task(knock(runtime.url, done))
        for number in range(swaps + 1):
            if number:
                await asyncio.to_thread(write_version, versions, number)
                await until(lambda number=number: reached(runtime, number))
            # every version samples something before the next comes, however slow the machine
            messages = [{"role": "user", "content": "Who is there?"}]
            answer = await agent.chat.completions.create(model="afterwit", messages=messages, max_tokens=4)
            assert answer.system_fingerprint == f"v{number}"
        done.set()
        await asyncio.gather(*talking)
        assert set(await knocking) == {200}
        seen = await runtime.store.call(
            lambda store: {version for record in store.turns() for version in record.turn.sampled.versions}
        )
        spans = await runtime.store.call(
            lambda store: [record.turn.sampled.versions for record in store.turns()]
        )
    assert len(served) >= streams
    assert seen == set(range(swaps + 1))
    assert all(list(span) == sorted(span) for span in spans)


async def reached(runtime: Runtime, number: int) -> bool | None:
    assert runtime.engine is not None
    return True if runtime.engine.version >= number else None


async def knock(url: str, done: asyncio.Event) -> list[int]:
    """The status of whole answers and of both probes, one after another."""
    found: list[int] = []
    body = {"model": "afterwit", "messages": [{"role": "user", "content": "Who is there?"}], "max_tokens": 4}
    async with httpx.AsyncClient(timeout=60) as http:
        while not done.is_set():
            found.append((await http.post(f"{url}/chat/completions", json=body)).status_code)
            for probed in ("healthz", "readyz"):
                found.append((await http.get(f"{url.removesuffix('/v1')}/{probed}")).status_code)
    return found


async def keep_talking(agent: AsyncOpenAI, number: int, done: asyncio.Event, served: list[int]) -> None:
    """Stream one answer after another, each whole; at least one."""
    turn = 0
    while turn == 0 or not done.is_set():
        messages = [{"role": "user", "content": f"Speaker {number}, question {turn}: what comes next?"}]
        stream = await agent.chat.completions.create(
            model="afterwit",
            messages=messages,
            stream=True,
            max_tokens=24,
            stream_options={"include_usage": True},
        )
        finish, tokens = None, 0
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].finish_reason:
                finish = chunk.choices[0].finish_reason
            if chunk.usage:
                tokens = chunk.usage.completion_tokens
        assert finish in ("stop", "length")
        assert tokens > 0
        served.append(number)
        turn += 1


def write_version(versions: Versions, number: int) -> None:
    """A version as the learner writes it, its weights moved at random."""

    def fill(folder: Path) -> None:
        if number:
            reweighted(folder, versions.base, seed=number)

    folder = versions.base if number == 0 else versions.root / "being-measured"
    if number:
        reweighted(folder, versions.base, seed=number)
    measured = probe(load_model(folder, dtype=torch.float32, device=torch.device("cpu")))
    version = Version(
        number=number,
        parent=number - 1 if number else None,
        origin=Origin.UPDATE if number else Origin.BASE,
        created=time.time(),
        probe=measured,
    )
    with versions.writing():
        versions.write(version, fill)
