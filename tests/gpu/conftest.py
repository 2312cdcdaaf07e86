"""Each test runs on the CPU, so that it is known to be one, and under `make test-gpu` on a CUDA device."""

from __future__ import annotations

import pytest
import torch

from tests.learning.conftest import _one_thread as _one_thread
from tests.learning.conftest import base as base
from tests.learning.conftest import renderer as renderer


@pytest.fixture(scope="session")
def cuda() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here: what runs on one stays unproved")
    return torch.device("cuda")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device("cpu") if request.param == "cpu" else request.getfixturevalue("cuda")
