from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.world import long_reader


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return long_reader(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def until() -> float:
    """When the whole suite must have ended."""
    return time.monotonic() + 60 * float(os.environ.get("MINUTES", "20"))


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A short path, since there may be sockets in it; what clients leave there goes with it."""
    with tempfile.TemporaryDirectory(prefix="aw-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
