"""Small models on disk, once a run, and engines that are closed after each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch

from afterwit.engines.embedded.engine import EmbeddedEngine
from afterwit.engines.embedded.settings import EmbeddedSettings
from tests.fakes.adapters import noise
from tests.fakes.models import reweighted, tiny_llama, tiny_qwen3
from tests.servers.published import published

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its heads have the smallest size that vLLM's attention takes on a CPU."""
    return tiny_qwen3(tmp_path_factory.mktemp("qwen"), head_dim=32)


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def newer_qwen(qwen: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights of `qwen` after some learning."""
    return reweighted(tmp_path_factory.mktemp("newer"), qwen, seed=1)


@pytest.fixture(scope="session")
def adapters(qwen: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two adapters over `qwen`."""
    return [noise(tmp_path_factory.mktemp(f"adapter{seed}"), qwen, seed=seed) for seed in (1, 2)]


@pytest.fixture(scope="session")
def published_model() -> Path:
    """A small model as they are published, in bfloat16. Skips the test where it was not fetched."""
    try:
        return published()
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["qwen", "llama"])
def family(request: pytest.FixtureRequest) -> Path:
    """Each family's folder in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
async def engine(qwen: Path) -> AsyncIterator[EmbeddedEngine]:
    engine = EmbeddedEngine.load(qwen, EmbeddedSettings(prefill_chunk=16, slots=8), seed=0)
    yield engine
    await engine.close()
