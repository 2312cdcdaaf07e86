"""Real SGLang servers for tests: with all that the engine needs, or less."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from afterwit.engines.kinds import open_engine
from afterwit.engines.port import Engine
from afterwit.engines.server.settings import SglangSettings, Swap
from afterwit.engines.sglang.server import flags
from tests.servers.server import Launch, Servers

RANK = 16
ON_A_CPU = ("--lora-backend", "torch_native")


def full(model: Path) -> Launch:
    """A server that takes adapters, and whole weights too, so that tests of both share it."""
    needed = flags(model, SglangSettings(swap="adapters"), lora_rank=RANK)
    return Launch(server="sglang", model=model, flags=(*needed, *ON_A_CPU))


def bare(model: Path) -> Launch:
    """A server that was started without any of our flags."""
    return Launch(server="sglang", model=model)


@asynccontextmanager
async def opened(servers: Servers, model: Path, *, swap: Swap, **settings: float) -> AsyncIterator[Engine]:
    """An engine over the full server."""
    server = servers.get(full(model))
    chosen = SglangSettings(url=server.url, swap=swap, **settings)  # type: ignore[arg-type]
    engine = await open_engine(model, chosen)
    try:
        yield engine
    finally:
        await engine.close()
