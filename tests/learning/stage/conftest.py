"""The start of every test of the learn stage."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from afterwit.chat_format.render import Renderer
from afterwit.verdict import JudgedTurn
from tests.fakes.judged_samples import a_sample
from tests.fakes.models import tiny_starcoder2
from tests.learning.conftest import _one_thread as _one_thread
from tests.learning.conftest import base as base
from tests.learning.conftest import renderer as renderer
from tests.learning.stage.learning import Place
from tests.processes import PROCESSES


@pytest.fixture
def place(base: Path, tmp_path: Path) -> Place:
    return Place(home=tmp_path, base=base)


@pytest.fixture(scope="session")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose float64 is float64 throughout. It has the tokenizer of `base`.

    Others round within: one last bit of a sum is then a difference of 1e-9.
    """
    return tiny_starcoder2(tmp_path_factory.mktemp("exact"), num_hidden_layers=1)


@pytest.fixture
def samples(renderer: Renderer) -> Callable[..., list[JudgedTurn]]:
    return lambda *numbers, **more: [a_sample(renderer, number, **more) for number in numbers]


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Processes that start with torch already imported."""
    return PROCESSES
