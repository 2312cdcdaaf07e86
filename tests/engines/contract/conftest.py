"""Each engine of the table in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from afterwit.engines.port import Engine
from tests.engines.contract.factories import FACTORIES, Models


@pytest.fixture
def models(qwen: Path, newer_qwen: Path, tmp_path: Path) -> Models:
    return Models(base=qwen, newer=newer_qwen, unfit=tmp_path)


@pytest.fixture(params=sorted(FACTORIES))
async def engine(request: pytest.FixtureRequest, models: Models) -> AsyncIterator[Engine]:
    async with FACTORIES[request.param](models) as engine:
        yield engine
