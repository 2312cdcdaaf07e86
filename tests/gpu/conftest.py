"""Each test runs on the CPU, so that it is known to be one, and under `make test-gpu` on a CUDA device."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from afterwit.wire.render import Renderer
from tests.fakes.models import tiny_qwen3


@pytest.fixture(scope="session")
def cuda() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here: what runs on one stays unproved")
    return torch.device("cuda")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device("cpu") if request.param == "cpu" else request.getfixturevalue("cuda")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3 folder."""
    return tiny_qwen3(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
def renderer(base: Path) -> Renderer:
    return Renderer.load(base)
