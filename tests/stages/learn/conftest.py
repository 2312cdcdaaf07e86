"""What every test of the learn stage starts from."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
import torch

from afterwit.core.judged_turn import JudgedTurn
from afterwit.wire.model_text.render import Renderer
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import tiny_qwen3
from tests.stages.learning import Place


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
def renderer(base: Path) -> Renderer:
    return Renderer.load(base)


@pytest.fixture
def place(base: Path, tmp_path: Path) -> Place:
    return Place(home=tmp_path, base=base)


@pytest.fixture
def samples(renderer: Renderer) -> Callable[..., list[JudgedTurn]]:
    return lambda *numbers, **more: [a_sample(renderer, number, **more) for number in numbers]


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Processes that start with torch already imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.stages.learning"])
    return context
