"""The learner's tests run on one thread: their models are tiny."""

from pathlib import Path

import pytest
import torch

from afterwit.chat_format.render import Renderer
from tests.fakes.models import tiny_qwen3
from tests.fakes.renderers import renderer_of


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3 folder, of one layer: the learner takes a model as it is. Llamas of the tests have two."""
    return tiny_qwen3(tmp_path_factory.mktemp("base"), num_hidden_layers=1)


@pytest.fixture(scope="session")
def renderer(base: Path) -> Renderer:
    return renderer_of(base)
