"""Real vLLM servers for tests: with all that the engine needs, or less."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from afterwit.engines.kinds import open_engine
from afterwit.engines.port import Engine
from afterwit.engines.server.settings import Swap, VllmSettings
from afterwit.engines.vllm.server import environment, flags
from tests.servers.server import Launch, Server, Servers

RANK = 16
WAYS: tuple[Swap, ...] = ("adapters", "whole")


def full(model: Path) -> Launch:
    """A server that takes adapters and whole weights, so that tests of both share it."""
    both = [VllmSettings(swap=swap) for swap in WAYS]
    named = dict.fromkeys(
        flag for settings in both for flag in _grouped(flags(model, settings, lora_rank=RANK))
    )
    variables = {name: value for settings in both for name, value in environment(settings).items()}
    return Launch(
        server="vllm",
        model=model,
        flags=tuple(word for flag in named for word in flag),
        environment=tuple(sorted(variables.items())),
    )


def running(servers: Servers, launch: Launch) -> Server:
    """The server, started if it does not run. Skips the test where vLLM is not installed."""
    try:
        return servers.get(launch)
    except FileNotFoundError as error:
        pytest.skip(str(error))


@asynccontextmanager
async def opened(servers: Servers, model: Path, *, swap: Swap, **settings: float) -> AsyncIterator[Engine]:
    """An engine over the full server."""
    server = running(servers, full(model))
    engine = await open_engine(model, VllmSettings(url=server.url, swap=swap, **settings))  # type: ignore[arg-type]
    try:
        yield engine
    finally:
        await engine.close()


def _grouped(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Each flag with its value."""
    groups: list[tuple[str, ...]] = []
    for word in words:
        groups = [*groups, (word,)] if word.startswith("--") else [*groups[:-1], (*groups[-1], word)]
    return groups
