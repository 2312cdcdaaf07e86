"""Weights change under running streams: no request fails, and every token has its version."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from afterwit.engines.port import Generate
from afterwit.turn import Sampling
from tests.fakes.models import reweighted
from tests.gateway.serving import folded, parse_stream, serving

TOKENS = 60


@pytest.fixture(scope="module")
def newer(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reweighted(tmp_path_factory.mktemp("newer"), model, seed=1)


async def swap(engine: EmbeddedEngine, folders: list[Path], times: int, streams: list[asyncio.Task]) -> None:
    """Swap between the folders' weights, as often as asked, while streams run."""
    for version in range(1, times + 1):
        await engine.stage(version, folders[version % 2])
        assert not all(stream.done() for stream in streams), "the streams ended before the swaps did"
        await engine.promote()
        await one_step(engine)


async def one_step(engine: EmbeddedEngine) -> None:
    """A response of two tokens shares its steps with the streams, so that they sample by the new version."""
    request = Generate(prompt_ids=(1, 2), sampling=Sampling(max_tokens=2, ignore_eos=True))
    assert [step async for step in engine.generate(request)]


async def all_finish(tmp_path: Path, renderer, folders: list[Path], *, streams: int, swaps: int) -> None:
    engine = EmbeddedEngine.load(folders[0], EmbeddedSettings(slots=streams + 1), seed=0)
    async with serving(tmp_path, renderer, engine=engine) as gateway:

        async def talk(number: int) -> bytes:
            said = [{"role": "user", "content": f"Number {number}"}]
            answer = await gateway.ask(
                said, model="afterwit", stream=True, max_tokens=TOKENS * swaps // 4, ignore_eos=True
            )
            assert answer.status_code == 200
            return answer.content

        tasks = [asyncio.ensure_future(talk(number)) for number in range(streams)]
        await swap(engine, folders, swaps, tasks)
        for content in await asyncio.gather(*tasks):
            assert folded(parse_stream(content))[0]["finish_reason"] == "length"
        records = await gateway.records()
    await engine.close()
    assert len(records) == streams
    seen = {version for record in records for version in record.turn.sampled.versions}
    assert len(seen) > 2
    assert all(list(r.turn.sampled.versions) == sorted(r.turn.sampled.versions) for r in records)


async def test_12_streams_across_4_swaps_all_finish(tmp_path, renderer, model, newer):
    await all_finish(tmp_path, renderer, [model, newer], streams=12, swaps=4)
