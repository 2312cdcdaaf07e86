"""A fresh store per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from afterwit.store import Store
from afterwit.store.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    opened = SqliteStore.open(path, fingerprint="model")
    yield opened
    opened.close()
