"""A tiny model's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.models import tiny_qwen3


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("model"))
