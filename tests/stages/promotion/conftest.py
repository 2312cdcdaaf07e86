"""The tiny model of the learner's tests, sure of each token: its weights are large."""

from pathlib import Path

import pytest

from tests.fakes.models import tiny_qwen3
from tests.learner.conftest import _one_thread as _one_thread
from tests.learner.conftest import renderer as renderer
from tests.stages.learn.conftest import place as place
from tests.stages.learn.conftest import processes as processes
from tests.stages.learn.conftest import samples as samples


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("sure"), initializer_range=4.0)
