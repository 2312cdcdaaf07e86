"""A store, and a renderer of a tiny model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.store import Store
from afterwit.store.sqlite import SqliteStore
from tests.fakes.models import tiny_qwen3
from tests.fakes.renderers import renderer_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = SqliteStore.open(tmp_path / "store.db", fingerprint="fake")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return renderer_of(tiny_qwen3(tmp_path_factory.mktemp("qwen")))
