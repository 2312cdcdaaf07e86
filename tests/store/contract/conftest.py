"""A fresh database for each test, of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from afterwit.store import Store
from tests.store.databases import DATABASES, KINDS, Database


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    return DATABASES[request.param](tmp_path / "database")


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    opened = database.open()
    yield opened
    opened.close()
