"""A fresh SQLite file for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from afterwit.store.sqlite import SqliteStore
from tests.store.databases import MODEL


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore.open(path, fingerprint=MODEL)
    yield opened
    opened.close()
