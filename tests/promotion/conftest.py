"""The tiny model of the learner's tests, sure of each token: its weights are large."""

from pathlib import Path

import pytest

from tests.fakes.models import tiny_qwen3
from tests.learning.conftest import _one_thread as _one_thread
from tests.learning.conftest import renderer as renderer
from tests.learning.stage.conftest import place as place
from tests.learning.stage.conftest import processes as processes
from tests.learning.stage.conftest import samples as samples


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3(tmp_path_factory.mktemp("sure"), initializer_range=4.0)
