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


@pytest.fixture(params=NAMES)
async def engine(request: pytest.FixtureRequest, models: Models, servers: Servers) -> AsyncIterator[Engine]:
    async with FACTORIES[request.param](models, servers) as engine:
        yield engine
