"""A published model, served by a real vLLM server in bfloat16, learns and serves what it learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from afterwit.engines.kinds import open_engine
from afterwit.engines.server.settings import VllmSettings
from tests.engines.half import learns_and_tells
from tests.engines.vllm.servers import full, running
from tests.servers.server import Servers


@pytest.mark.engines
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_what_it_learned_is_served_and_nothing_else_passes_for_it(
    dtype: str, servers: Servers, published_model: Path, tmp_path: Path
) -> None:
    launch = full(published_model)
    server = running(servers, replace(launch, flags=(*launch.flags, "--dtype", "bfloat16")))
    unwatched = VllmSettings(
        url=server.url, watch_s=3600
    )  # a busy machine may be late to say that it is well
    engine = await open_engine(published_model, unwatched)
    try:
        assert engine.facts.dtype == "bfloat16"
        await learns_and_tells(tmp_path, published_model, engine, dtype=dtype)
    finally:
        await engine.close()
