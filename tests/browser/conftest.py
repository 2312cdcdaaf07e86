"""Chromium over a gateway with a made-up history. Neither is started before a test needs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from afterwit.chat_format.render import Renderer
from tests.browser.world import World, world_in

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "src/afterwit/demo/tools/model"
AXE = Path(os.environ.get("AXE", ROOT / "build/page/package/axe.min.js"))


@pytest.fixture(scope="session")
def renderer() -> Renderer:
    return Renderer.load(MODEL)


@pytest.fixture
async def world(tmp_path: Path, renderer: Renderer) -> AsyncIterator[World]:
    async with world_in(tmp_path, renderer) as made:
        yield made


@pytest.fixture
async def browser():
    from tests.browser.chromium import chromium  # playwright is of the extra `browser` alone

    async with chromium() as made:
        yield made


@pytest.fixture
def axe() -> str:
    if not AXE.exists():
        pytest.fail(f"there is no {AXE}: `make test-browser` fetches it")
    return AXE.read_text()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("browser") and shutil.which("chromium") is None:
            item.add_marker(pytest.mark.skip(reason="there is no chromium on the path"))
