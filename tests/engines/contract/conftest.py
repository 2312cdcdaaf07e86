"""Each engine of the table in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from afterwit.engines.port import Engine
from tests.engines.contract.factories import FACTORIES, SERVED, Models
from tests.servers.server import Servers

REAL = (pytest.mark.engines, pytest.mark.slow)
NAMES = [pytest.param(name, marks=REAL if name in SERVED else ()) for name in sorted(FACTORIES)]


@pytest.fixture
def models(qwen: Path, newer_qwen: Path, adapters: list[Path], tmp_path: Path) -> Models:
    return Models(base=qwen, newer=newer_qwen, adapter=adapters[0], unfit=tmp_path)


@pytest.fixture(params=NAMES, scope="session")
def name(request: pytest.FixtureRequest) -> str:
    """Session-wide, so that all tests of one engine come together and its server starts once."""
    chosen: str = request.param
    return chosen


@pytest.fixture
async def engine(name: str, models: Models, servers: Servers) -> AsyncIterator[Engine]:
    async with FACTORIES[name](models, servers) as engine:
        yield engine
