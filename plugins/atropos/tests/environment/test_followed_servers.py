"""run-api, trainer, environment and a real model server, each a process: what learns is what plays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("atroposlib", reason="needs the extra atropos")

from afterwit import build
from afterwit_atropos.demo import MODEL, run
from afterwit_atropos.group import Profile
from plugins.atropos.tests.environment.stock import CONTEXT
from tests.engines.sglang import servers as sglang
from tests.engines.vllm import servers as vllm
from tests.servers.server import Server, Servers

pytestmark = [pytest.mark.slow, pytest.mark.engines, pytest.mark.atropos]
STEPS = 3
LENGTH = {"vllm": "--max-model-len", "sglang": "--context-length"}
CLOSE = 1e-3
"""Nats between server and trainer over tokens of the same weights, both in float32."""


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_server_plays_with_every_version_of_the_trainer(
    name: str, servers: Servers, tmp_path: Path
) -> None:
    server = with_adapters(servers, name)
    points = run(
        tmp_path,
        steps=STEPS,
        profile=Profile.TOPK,
        seed=0,
        held_out=10,
        environment={
            "openai.server_type": name,
            "openai.base_url": f"{server.url}/v1",
            "env.engine": "server",
            "env.follow_weights": True,
            "env.agent_temperature": 1.0,
        },
        trainer=("--set", f"learner.lora_rank={vllm.RANK}"),
    )
    assert (points[0].version, points[-1].version) == (0, STEPS)
    log = (tmp_path / "environment.log").read_text()
    assert [f"serving version {number}" in log for number in range(1, STEPS + 1)] == [True] * STEPS
    for number in range(1, STEPS + 1):
        version = build.versions_of(tmp_path / "home", MODEL).get(number)
        assert version is not None
        assert version.metrics["opd_samples"] > 0
        assert version.metrics.get("mismatch_fresh", 0.0) < CLOSE


def with_adapters(servers: Servers, name: str) -> Server:
    """The server with what new versions take."""
    launch = {"vllm": vllm.full, "sglang": sglang.full}[name](MODEL)
    launch = replace(launch, flags=(*launch.flags, LENGTH[name], str(CONTEXT)))
    try:
        return servers.get(launch)
    except FileNotFoundError as error:
        pytest.skip(str(error))
