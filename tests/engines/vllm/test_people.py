"""People with an adapter each over a real vLLM server: what one teaches reaches that one alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from afterwit.checkpoints.versions import Versions
from afterwit.config import Settings, load
from afterwit.running.serve import Runtime
from tests.engines.vllm.servers import full, running
from tests.journey.conftest import PlainJudge, until
from tests.journey.conftest import _clients_are_closed as _clients_are_closed
from tests.journey.people import newer, person, trained
from tests.servers.server import Servers

pytestmark = [pytest.mark.engines, pytest.mark.slow]
LEARNER = {
    "adapters": "per_key",
    "batch": 1,
    "min_batch": 1,
    "max_wait_s": 0.5,
    "poll_s": 0.05,
    "lora_rank": 4,
    "lr": 1e-3,
    "measure_effects": False,
    "threads": 1,
}


def settings_of(home: Path, model: Path, url: str) -> Settings:
    sections = {
        "engine": {"kind": "vllm", "url": url, "dtype": "float32"},
        "serve": {"port": 0},
        "gateway": {"max_tokens": 24, "key_refresh_s": 0.05},
        "judge": {"poll_s": 0.05},
        "learner": LEARNER,
        "practice": {"enabled": False},
        "publish": {"poll_s": 0.05},
    }
    return load(home=home, below={"model": str(model)} | sections, environment={})


async def test_two_people_teach_an_adapter_each_on_one_vllm_server(
    servers: Servers, qwen: Path, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, qwen, running(servers, full(qwen)).url)
    async with Runtime(settings, tmp_path, judge=PlainJudge()) as runtime:
        ann, bob = [await person(runtime, name) for name in ("ann", "bob")]
        untaught = await bob.hears()
        assert untaught[0] == (await ann.hears())[0] == "v0"
        turn = await ann.teach(1)
        await until(lambda: trained(runtime, [turn]))
        of_ann = await newer(ann, "v0")
        assert of_ann[1] != pytest.approx(untaught[1], abs=1e-3)
        assert await bob.hears() == ("v0", pytest.approx(untaught[1], abs=1e-4))
        turn = await bob.teach(2)
        await until(lambda: trained(runtime, [turn]))
        of_bob = await newer(bob, "v0")
        heard = await asyncio.gather(*(someone.hears() for someone in (ann, bob, ann, bob)))
        for (version, logprobs), taught in zip(heard, (of_ann, of_bob) * 2, strict=True):
            assert (version, logprobs) == (taught[0], pytest.approx(taught[1], abs=1e-4))
    chains = Versions(root=tmp_path / "versions", base=qwen).chains()
    assert chains == {"key:ann": [0, 1], "key:bob": [0, 2]}
