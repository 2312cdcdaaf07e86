from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from afterwit.chat_format.render import Renderer
from tests.fakes.models import tiny_qwen3
from tests.gateway.embedded import World, embedded
from tests.gateway.serving import Serving, serving


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("model"), num_hidden_layers=1)


@pytest.fixture(scope="session")
def renderer(model: Path) -> Renderer:
    return Renderer.load(model)


@pytest.fixture
async def gateway(tmp_path: Path, renderer: Renderer) -> AsyncIterator[Serving]:
    async with serving(tmp_path, renderer) as made:
        yield made


@pytest.fixture
async def world(tmp_path: Path, model: Path, renderer: Renderer) -> AsyncIterator[World]:
    async with embedded(tmp_path, model, renderer) as made:
        yield made
