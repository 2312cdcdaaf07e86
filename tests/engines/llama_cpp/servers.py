"""A real llama-server for tests, over the file of a small model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from afterwit.engines.kinds import open_engine
from afterwit.engines.llama_cpp.server import command
from afterwit.engines.model_files import LINK
from afterwit.engines.port import Engine
from afterwit.engines.server.settings import LlamaCppSettings
from afterwit.gguf.write import write_model
from tests.servers.llama_cpp import SERVER
from tests.servers.server import Launch, Servers

ONE_THREAD = ("--threads", "1", "--log-verbosity", "2")


def launch(model: Path) -> Launch:
    """Of a model folder, whose file is written in single precision if there is none."""
    if not (file := model / LINK).exists():
        write_model(model, file, "f32", name="small")
    return Launch(server="llama_cpp", model=model)


def settings(url: str, **more: Any) -> LlamaCppSettings:
    """Of an engine over a server; 4 responses at a time."""
    own = {"command": (str(SERVER),), "flags": ONE_THREAD, "slots": 4, "context_length": 2048}
    return LlamaCppSettings(url=url, **{**own, **more})


def arguments(model: Path, port: int) -> tuple[str, ...]:
    return command(model, settings("http://127.0.0.1:1"), host="127.0.0.1", port=port).arguments


@asynccontextmanager
async def opened(servers: Servers, model: Path, **more: Any) -> AsyncIterator[Engine]:
    """An engine over the server. Skips the test where llama.cpp is not built."""
    try:
        server = servers.get(launch(model))
    except FileNotFoundError as error:
        pytest.skip(str(error))
    engine = await open_engine(model, settings(server.url, **more))
    try:
        yield engine
    finally:
        await engine.close()
