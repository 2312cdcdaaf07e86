"""A store and a judge stage, for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from afterwit.store import AsyncStore
from afterwit.store.sqlite import SqliteStore
from tests.judging.stage.house import House


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AsyncStore]:
    opened = AsyncStore(SqliteStore.open(tmp_path / "store.db", fingerprint=None))
    yield opened
    await opened.close()


@pytest.fixture
def house(store: AsyncStore) -> House:
    return House(store)
